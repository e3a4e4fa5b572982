"""Decoded records that are to be applied to an index, and the outcomes of a batch and of a removal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from caraway.dataplane.topics.codec import Record

# A record by itself: key, value, and its position on the topic as an identity (`caraway.dataplane.topics.identity`).
Single = tuple[bytes | None, bytes | None, bytes]


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A record that the index can take: its key, itself, its identity, its bytes and an aggregate input's values.

    `rank` precedes the identity in the order of aggregate inputs of equal times. A record of an `erased` key adds no
    entry: it only advances the max event time, and removes the earlier revision of its identity if it has one.
    """

    key: bytes
    record: Record
    record_id: bytes
    value: bytes
    values: tuple[Any, ...] = ()
    rank: bytes = b""
    erased: bool = False


@dataclass(slots=True)
class Puts:
    """Records that can't be revised, as columns of one length, which takes a fraction of the time of single ones.

    Attributes:
        keys: The Kafka key of each record.
        times: Its event time in microseconds.
        orders: Its place among records of equal times: the `rank` and identity of a `Delivered`.
        data: Its bytes.
        values: Its values, if it is an aggregate input.
        newest_ingested_us: The greatest ingestion time; 0 if that isn't known.
    """

    keys: Sequence[bytes]
    times: Sequence[int]
    orders: Sequence[bytes]
    data: Sequence[bytes]
    values: Sequence[tuple[Any, ...]] = ()
    newest_ingested_us: int = 0


@dataclass(slots=True)
class Applied:
    """The outcome of a batch: the numbers of records that were written, that changed nothing, and that were refused.

    `newest_ingested_us` is the greatest ingestion time of records that weren't refused, in microseconds; 0 if there are
    none.
    """

    written: int = 0
    unchanged: int = 0
    refused: int = 0
    newest_ingested_us: int = 0


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of a slice: the number of entries removed, and the begin of the next slice; None after the last."""

    removed: int
    next: bytes | None
