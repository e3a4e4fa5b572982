"""Identities of records: the position of the source record, so that greater means later (docs/records.md)."""

import struct

_POSITION = struct.Struct(">QI")
ID_BYTES = _POSITION.size


def position_id(offset: int, partition: int) -> bytes:
    """Return the identity of the source record at `offset` of `partition`: 12 bytes in the order of offsets."""
    return _POSITION.pack(offset, partition)


def position_of(record_id: bytes) -> tuple[int, int]:
    """Return offset and partition of the source record in an identity, with or without an operator's suffix."""
    offset, partition = _POSITION.unpack_from(record_id)
    return offset, partition
