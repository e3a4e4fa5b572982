"""The metadata of messages of Arrow IPC streams: what buffers take uncompressed, before anything is decompressed.

PyArrow has no function that tells whether a message is compressed. Its layout is that of FlatBuffers:
https://flatbuffers.dev/internals/, https://github.com/apache/arrow/blob/main/format/Message.fbs
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

from caraway.errors import InvalidInputError

# Numbers from Arrow's FlatBuffers schema Message.fbs. First those of two fields of a message: the kind of its header,
# and the header itself. Then those of the kinds "dictionary" and "record batch".
_KIND, _HEADER = 1, 2
_DICTIONARY, _BATCH = 2, 3
# The numbers of the fields of a batch that hold its buffers and their compression, and of the field of a dictionary
# that holds its batch.
_BUFFERS, _COMPRESSION, _DATA = 2, 3, 1
_BUFFER = struct.Struct("<qq")
_LENGTH = struct.Struct("<q")


def plain_size(message: pa.Message) -> int:
    """Return how many bytes the buffers of a message take once they are decompressed.

    Raises `InvalidInputError` if the metadata are damaged.
    """
    metadata, data = message.metadata.to_pybytes(), message.body
    body = b"" if data is None else memoryview(data)
    try:
        batch = _batch(metadata)
        buffers = None if batch is None else _field(metadata, batch, _BUFFERS)
        if batch is None or buffers is None or _field(metadata, batch, _COMPRESSION) is None:
            return len(body)
        return sum(_plain_sizes(metadata, _table(metadata, buffers), body))
    except (struct.error, IndexError) as error:
        raise InvalidInputError("the body is no Arrow IPC stream: the metadata of a message is damaged") from error


def is_compressed(message: pa.Message) -> bool:
    """Return whether a message has buffers that are compressed.

    Raises `InvalidInputError` if the metadata are damaged.
    """
    metadata = message.metadata.to_pybytes()
    try:
        batch = _batch(metadata)
        return batch is not None and _field(metadata, batch, _COMPRESSION) is not None
    except (struct.error, IndexError) as error:
        raise InvalidInputError("the metadata of a message is damaged") from error


def _batch(metadata: bytes) -> int | None:
    """Return the position of the record batch of a message, or of its dictionary; None if it has neither."""
    message = _table(metadata, 0)
    kind, header = _field(metadata, message, _KIND), _field(metadata, message, _HEADER)
    if kind is None or header is None or metadata[kind] not in {_DICTIONARY, _BATCH}:
        return None
    batch = _table(metadata, header)
    if metadata[kind] == _BATCH:
        return batch
    inner = _field(metadata, batch, _DATA)
    return None if inner is None else _table(metadata, inner)


def _plain_sizes(metadata: bytes, vector: int, data: "memoryview | bytes") -> Iterator[int]:
    (count,) = struct.unpack_from("<I", metadata, vector)
    for number in range(count):
        offset, length = _BUFFER.unpack_from(metadata, vector + 4 + number * _BUFFER.size)
        if length < _LENGTH.size or offset < 0:
            continue
        # If a message is compressed, each of its buffers begins with its uncompressed length. The length -1 means that
        # this buffer isn't compressed after all.
        (plain,) = _LENGTH.unpack_from(data, offset)
        if plain < -1:
            raise InvalidInputError("the body is no Arrow IPC stream: a compressed buffer has a negative length")
        yield length if plain == -1 else plain


def _table(data: bytes, position: int) -> int:
    """Return the position of the table or vector whose offset stands at `position` (the layout of FlatBuffers)."""
    return position + int(struct.unpack_from("<I", data, position)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the position of a field of a table by its number, None if the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", data, fields)
    entry = 4 + 2 * number
    if entry >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, fields + entry)
    return table + offset if offset else None
