"""Compressed files, decoded by the extension of their names."""

import struct
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from caraway.errors import InvalidInputError

# pyarrow's names of the codecs that it decodes as streams, by extension.
STREAMS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
SNAPPY = ".snappy"
# The beginning of a file in Snappy's own framing format.
SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
# The most bytes of a block of Snappy. By default, a block has 64 KiB in Snappy's own format, and 256 KiB from Hadoop's
# writers. A greater length counts as damage, before memory is allocated.
MAX_BLOCK = 64 * 1024 * 1024


class Stream(Protocol):
    """An open file that is read from its beginning to its end."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        ...


def decompressed(path: str, stream: Stream) -> Any:
    """Return the content of a file, decompressed if the extension of its name says so.

    Reading raises `OSError` or `InvalidInputError` if the content is damaged or cut.
    """
    extension = f".{path.rpartition('.')[2]}".lower()
    if extension in STREAMS:
        return pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), STREAMS[extension])
    if extension == SNAPPY:
        return pa.PythonFile(_Snappy(stream), mode="r")
    return pa.PythonFile(stream, mode="r")


class _Snappy:
    """The content of a Snappy file, in Snappy's own framing or in that of Hadoop and Spark.

    Arrow has the codec of single blocks, and none of the two framings.
    """

    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ready = b""
        self._next: Callable[[], bytes | None] | None = None

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        if self._next is None:
            self._start()
        parts = [self._ready]
        have = len(self._ready)
        while (size is None or size < 0 or have < size) and self._next is not None:
            block = self._next()
            if block is None:
                break
            parts.append(block)
            have += len(block)
        data = b"".join(parts)
        end = len(data) if size is None or size < 0 else size
        self._ready = data[end:]
        return data[:end]

    def readable(self) -> bool:
        """Return true."""
        return True

    def close(self) -> None:
        """Do nothing: the file is closed by its owner."""

    def _start(self) -> None:
        head = self._take(4, may_end=True)
        if head == SNAPPY_MAGIC[:4]:
            self._take(len(SNAPPY_MAGIC) - 4)
            self._next = self._framed
        else:
            first: list[bytes] = [head]
            self._next = lambda: self._hadoop(first.pop() if first else self._take(4, may_end=True))

    def _framed(self) -> bytes | None:
        while head := self._take(4, may_end=True):
            kind, length = head[0], int.from_bytes(head[1:], "little")
            body = self._take(length)
            # The first four bytes of a block are its checksum, which isn't compared.
            if kind == 0x00:
                return _block(body[4:])
            if kind == 0x01:
                return body[4:]
            if kind < 0x80:
                raise InvalidInputError(f"the Snappy file has a chunk of the unknown kind {kind:#04x}")
        return None

    def _hadoop(self, head: bytes) -> bytes | None:
        if not head:
            return None
        (left,) = struct.unpack(">I", head)
        parts: list[bytes] = []
        while left > 0:
            (length,) = struct.unpack(">I", self._take(4))
            block = _block(self._take(length))
            left -= len(block)
            parts.append(block)
            if not block:
                raise InvalidInputError("the Snappy file has an empty block")
        return b"".join(parts)

    def _take(self, size: int, *, may_end: bool = False) -> bytes:
        if size > MAX_BLOCK:
            raise InvalidInputError("the file isn't in a format of Snappy")
        data = b""
        while len(data) < size:
            more = self._stream.read(size - len(data))
            if not more:
                break
            data += more
        if len(data) < size and not (may_end and not data):
            raise InvalidInputError("the Snappy file is cut")
        return data


def _block(data: bytes) -> bytes:
    """Return the content of a block, whose length is at its beginning in seven bits a byte."""
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if length > MAX_BLOCK:
        raise InvalidInputError("the Snappy file has a block that is too large")
    return bytes(pa.Codec("snappy").decompress(data, length, asbytes=True))
