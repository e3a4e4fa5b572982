"""Records on their way into an index."""

from dataclasses import dataclass
from typing import Any

import msgspec

from caraway.topics import Record


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A record that the index can take: its key, itself, its identity, its bytes; of an aggregate input its values.

    `rank` comes before the identity among aggregate inputs of equal times. A record that is `erased` contributes
    nothing: of an earlier revision that stood elsewhere nothing is left, and only the max event time still hears of its
    time.
    """

    key: bytes
    record: Record
    record_id: bytes
    value: bytes
    values: tuple[Any, ...] = ()
    rank: bytes = b""
    erased: bool = False


@dataclass(slots=True)
class Applied:
    """What became of a batch: records that are in the index now, that changed nothing, that were left out.

    `newest_ingested_us` is the greatest ingestion time among those taken, microseconds; 0 if there is none.
    """

    written: int = 0
    unchanged: int = 0
    refused: int = 0
    newest_ingested_us: int = 0
