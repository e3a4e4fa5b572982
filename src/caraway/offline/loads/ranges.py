"""The division of an index by ranges of its keys, so that the tables of two divisions never overlap.

RocksDB puts tables that overlap nothing on its lowest level, where no compaction has to touch them again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from caraway.dataplane.topics.codec import RecordCodec
from caraway.expr.polars.values import from_polars
from caraway.graph.plan.model import Column
from caraway.offline.history.groups import Groups, Ints

# The bytes of a key's length in its order. Entries of the index begin with the length of their key, in two bytes; keys
# that are too long for that are refused later.
_LENGTH_BYTES = 4


class KeyOrders:
    """The keys of some records: how often each occurs, and its place in the order of the index's entries."""

    def __init__(self, keys: tuple[Column, ...], frame: pl.DataFrame) -> None:
        """Read the key columns of records."""
        groups = Groups(keys)
        self.numbers: Ints = groups.add(frame)
        """The number of each record's key."""
        first = np.zeros(groups.count, np.int64)
        # The first record of each key is written last, so it stays.
        first[self.numbers[::-1]] = np.arange(frame.height - 1, -1, -1)
        values = [from_polars(frame[key.name][first], key.dtype) for key in keys]
        encode = RecordCodec.of_keys(keys).encode_key
        encoded = [encode(row) or b"" for row in zip(*values, strict=True)]
        self.orders = [len(key).to_bytes(_LENGTH_BYTES) + key for key in encoded]
        """The place of each key; places are compared as bytes."""

    def sample(self) -> list[bytes]:
        """Return the place of each record's key."""
        return [self.orders[number] for number in self.numbers.tolist()]

    def divisions(self, bounds: Sequence[bytes]) -> Ints:
        """Return the division of each record, given the least places of all divisions but the first."""
        found = np.fromiter((bisect_right(bounds, order) for order in self.orders), np.int64, len(self.orders))
        return found[self.numbers]


def bounds_of(sample: Iterable[bytes], count: int) -> tuple[bytes, ...]:
    """Return bounds of up to `count` divisions with about the same number of records, given places of some records.

    A key with many records is the bound of one division only, which then has more records than others.
    """
    places = sorted(sample)
    chosen = [places[len(places) * number // count] for number in range(1, count)] if places else []
    return tuple(dict.fromkeys(bound for bound in chosen if bound != places[0]))
