"""Blocks: many records of a topic without keys as one Kafka message (docs/inside/records.md).

A message costs the producer, the broker and each consumer several microseconds, whatever it contains. So rows that
arrive together are sent together.
"""

import struct
from collections.abc import Sequence

import msgspec

from caraway.errors import InvalidInputError

# The limits of a block. With 100 records, the cost of a message is a tenth of the cost of its records. Larger blocks
# would save little, and a consumer can't read less than a whole block at a time.
MAX_RECORDS = 100
MAX_BYTES = 128 * 1024

# A block is a MessagePack array with a length of 16 bits. A record is an array of eight items, so its first byte is
# another one.
_ARRAY16 = 0xDC
_HEAD = struct.Struct(">BH")
_DECODE_RAW = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def block_of(values: Sequence[bytes]) -> bytes:
    """Return the block of some records, which are given as `RecordCodec.encode_value` returns them."""
    return _HEAD.pack(_ARRAY16, len(values)) + b"".join(values)


def blocks_of(values: Sequence[bytes]) -> list[slice]:
    """Return how to divide records into blocks within the bounds: slices of `values`, in order."""
    slices: list[slice] = []
    start = size = 0
    for at, value in enumerate(values):
        if at > start and (at - start == MAX_RECORDS or size + len(value) > MAX_BYTES):
            slices.append(slice(start, at))
            start, size = at, 0
        size += len(value)
    if values:
        slices.append(slice(start, len(values)))
    return slices


def is_block(value: bytes | None) -> bool:
    """Return whether a message's value is a block."""
    return bool(value) and value[0] == _ARRAY16  # type: ignore[index]


def records_in(value: bytes | None) -> int:
    """Return how many records a message's value claims to have: those of a block, and 1 for anything else."""
    return int.from_bytes(value[1:3]) if is_block(value) else 1  # type: ignore[index]


def split(value: bytes) -> list[bytes]:
    """Return the records of a block. Raises `InvalidInputError` if it is damaged."""
    try:
        return [bytes(record) for record in _DECODE_RAW(value)]
    except msgspec.MsgspecError as error:
        raise InvalidInputError(f"the bytes are no block of records: {error}") from error


def parts_of(value: bytes) -> list[bytes]:
    """Return the records of a message; a damaged block is returned as if it were a record, which nobody can decode."""
    try:
        return split(value) if is_block(value) else [value]
    except InvalidInputError:
        return [value]
