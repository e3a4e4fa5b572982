"""Identities of records: the position of the source record, so that greater means later (docs/inside/records.md)."""

import struct
from functools import lru_cache

from caraway.dataplane.topics.blocks import MAX_RECORDS

_POSITION = struct.Struct(">QI")
_OFFSET = struct.Struct(">Q")
_SPLIT = struct.Struct(">QHH")
_NUMBER = struct.Struct(">HH")
ID_BYTES = _POSITION.size


def position_id(offset: int, partition: int, number: int = 0) -> bytes:
    """Return the identity of a source record: 12 bytes in the order of offsets.

    Args:
        offset: The offset of its message.
        partition: The partition of its message. Beyond the first record of a block it must be less than 65,536.
        number: Its number in a block; 0 for a record that is a message.
    """
    return _POSITION.pack(offset, number << 16 | partition)


def position_ids(offset: int, partition: int, count: int) -> list[bytes]:
    """Return the identities of the `count` records of a message, in their order."""
    if count == 1:
        return [_POSITION.pack(offset, partition)]
    head = _OFFSET.pack(offset)
    return [head + tail for tail in _tails(partition, count)]


def spelled(position: bytes) -> str:
    """Return the position of a source record for people: "partition@offset", with "+number" behind a block's first."""
    offset, number, partition = _SPLIT.unpack(position)
    return f"{partition}@{offset}" + (f"+{number}" if number else "")


@lru_cache(maxsize=4 * MAX_RECORDS)
def _tails(partition: int, count: int) -> tuple[bytes, ...]:
    return tuple(_NUMBER.pack(number, partition) for number in range(count))
