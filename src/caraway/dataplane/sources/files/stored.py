"""Files as stores have them, and the role of a store: a bucket, a container or a folder with files in it."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

# The bytes that are asked for at once of an object that is read in order.
CHUNK = 1 << 20


class VanishedError(Exception):
    """The file isn't there any more."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store as it was listed: `path` is relative to the bucket, container or folder.

    `size` is in bytes, `written_ns` in nanoseconds since the epoch, as the store tells it.
    """

    path: str
    size: int
    written_ns: int


class FileStore:
    """A bucket, container or folder. All methods raise `UnavailableError` if it doesn't answer or refuses.

    Attributes:
        root: The bucket or container, or the real path of the folder.
        where: The store, for people.
    """

    def __init__(self, root: str, where: str) -> None:
        self.root = root
        self.where = where

    def check(self) -> None:
        """Check that the bucket, container or folder is there and may be listed."""
        raise NotImplementedError

    def listed(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """Return the files right in a folder, and the names of its subfolders; none if there is no such folder."""
        raise NotImplementedError

    def find(self, path: str) -> StoredFile | None:
        """Return a file as it is now; None if there is none."""
        raise NotImplementedError

    def open(self, path: str) -> "StoreFile":
        """Open a file for reading. Raises `VanishedError` if it isn't there."""
        raise NotImplementedError

    def is_inside(self, path: str) -> bool:
        """Return whether a file is really in the store, and not behind a link that leads out of it."""
        del path
        return True

    def is_link(self, folder: str) -> bool:
        """Return whether a folder is a link to another one, which could lead around in a circle."""
        del folder
        return False


class StoreFile:
    """An open file, as Python's files are. Errors of the store are `UnavailableError`, so that all others that a
    decoder raises are about the content.
    """  # noqa: D205 (one sentence more than a line holds)

    closed = False

    def __init__(self, stream: Any, size: int, translated: Callable[[], AbstractContextManager[None]]) -> None:
        self._stream = stream
        self._translated = translated
        self.size = size
        self.read_bytes = 0
        """How many bytes were read so far."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; all that are left if `size` is negative or None."""
        with self._translated():
            data: bytes = self._stream.read() if size is None or size < 0 else self._stream.read(size)
        self.read_bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position, and return it."""
        base = {0: 0, 1: self._stream.tell(), 2: self.size}[whence]
        self._stream.seek(base + offset)
        return int(base + offset)

    def tell(self) -> int:
        """Return the position."""
        return int(self._stream.tell())

    def readable(self) -> bool:
        """Return true."""
        return True

    def writable(self) -> bool:
        """Return false."""
        return False

    def seekable(self) -> bool:
        """Return true."""
        return True

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ObjectRanges(io.RawIOBase):
    """An object of a store that is read by requests for ranges of its bytes."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        """Prepare to read from the beginning.

        Args:
            size: The size of the object in bytes.
            fetch: Returns the bytes from a position on, given the position and how many.
        """
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._at = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position, and return it."""
        self._at = {0: 0, 1: self._at, 2: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, as far as there are any; return how many.

        Raises:
            OSError: The store has sent another number of bytes than it was asked for.
        """
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """Return all bytes that are left, by one request."""
        return self._next(self._size)

    def _next(self, most: int) -> bytes:
        length = min(most, self._size - self._at)
        if length <= 0:
            return b""
        data = self._fetch(self._at, length)
        if len(data) != length:
            raise OSError(f"the answer has {len(data)} bytes instead of {length}")
        self._at += length
        return data


def opened_object(
    size: int, fetch: Callable[[int, int], bytes], translated: Callable[[], AbstractContextManager[None]]
) -> StoreFile:
    """Return an object of a store as an open file.

    Args:
        size: The size of the object in bytes.
        fetch: Returns the bytes from a position on, given the position and how many.
        translated: Returns a context that raises errors of the store as `UnavailableError` and `VanishedError`.
    """
    return StoreFile(io.BufferedReader(ObjectRanges(size, fetch), CHUNK), size, translated)
