"""The sample of a source: a pure function of some values of a row, the same in every process and language.

A row is kept if `hash64(values) / 2^64 < rate`. `values` are those of the sampling columns, sorted by name, in stored
form (docs/inside/records.md), encoded as one MessagePack array in shortest forms, as the keys of records are. `hash64`
is the first eight bytes of SHA-256 of that, big-endian. So all rows of one key are kept or none is, and a delete is
kept if its insert is.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from caraway.graph.source_checks import sample_columns
from caraway.graph.sources import SourceSpec
from caraway.graph.specs import DatasetSpec

SPAN = 2**64


def hash64(values: Sequence[object]) -> int:
    """Hash values in stored form to 64 bits."""
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(list(values))).digest()[:8], "big")


def sampler(dataset: DatasetSpec, source: SourceSpec) -> Callable[[Mapping[str, object]], bool]:
    """Compile the filter by the sample of a source."""
    if source.sample is None:
        return lambda _row: True
    columns = sample_columns(dataset, source)
    # SPAN is a power of two, so the product is exact: only the exponent of the float changes. Every process and
    # language therefore has the same bound.
    bound = source.sample.rate * SPAN
    return lambda row: hash64([row[name] for name in columns]) < bound
