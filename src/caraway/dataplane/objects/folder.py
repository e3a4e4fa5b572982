"""A folder of an object store. An object appears under its name when it has been written completely, or not at all."""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
from pyarrow import fs
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from caraway.errors import UnavailableError
from caraway.process.private_files import sync

# Objects that are being written are in this subfolder, so that listings of other folders never show them.
PARTS = ".parts"
# A listing fails if another process removes an object meanwhile, so it is tried up to five times.
LIST_ATTEMPTS = stop_after_attempt(5)
PIECE = 1 << 20

Digest = str


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its name relative to the folder, its size in bytes, when it was written (seconds since the epoch)."""

    name: str
    size: int
    written_at: float


class ObjectFolder:
    """Reads and writes objects below one address. Thread safe.

    All methods raise `UnavailableError` when the store doesn't answer, or lacks the object that is read.
    """

    def __init__(self, url: str, files: tuple[fs.FileSystem, str] | None = None) -> None:
        """Use the folder `url`: an absolute path, or an address such as `s3://bucket/prefix`. A write creates it.

        `files` are the file system and the path of the folder, if the address alone doesn't open it.
        """
        self.url = url
        with self._translated_errors(""):
            self._files, path = files or fs.FileSystem.from_uri(url)
        self._root: str = path.rstrip("/")
        self._local = isinstance(self._files, fs.LocalFileSystem)

    def stored(self, under: str = "") -> list[Stored]:
        """Return the objects whose names begin with the folder `under`, in order of their names."""
        root = f"{self._root}/{under}".rstrip("/")
        with self._translated_errors(under):
            found = self._listed(fs.FileSelector(root, allow_not_found=True, recursive=True))
        objects = [
            Stored(info.path[len(self._root) + 1 :], info.size, info.mtime_ns / 1e9)
            for info in found
            if info.type is fs.FileType.File and not info.path.startswith(f"{self._root}/{PARTS}/")
        ]
        return sorted(objects, key=lambda stored: stored.name)

    def _listed(self, selector: Any) -> list[Any]:
        retrying = Retrying(retry=retry_if_exception_type(FileNotFoundError), stop=LIST_ATTEMPTS, reraise=True)
        found: list[Any] = retrying(self._files.get_file_info, selector)
        return found

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with self._translated_errors(name), self._files.open_input_stream(self._path(name)) as stream:
            content: bytes = stream.read()
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write an object; an earlier object of this name is replaced."""
        with self._appearing(name) as stream:
            stream.write(content)

    def put(self, path: Path, name: str) -> Digest:
        """Write a file's content to an object, and return the digest of the content."""
        digest = hashlib.sha256()
        with self._appearing(name) as stream, path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                stream.write(piece)
        return digest.hexdigest()

    def fetch(self, name: str, path: Path) -> Digest:
        """Write an object's content to a file, and return the digest of the content."""
        digest = hashlib.sha256()
        with (
            self._translated_errors(name),
            self._files.open_input_stream(self._path(name)) as stream,
            path.open("wb") as file,
        ):
            while piece := stream.read(PIECE):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with self._translated_errors(name):
            if self._files.get_file_info(self._path(name)).type is fs.FileType.File:
                self._files.delete_file(self._path(name))

    def remove_folder(self, under: str) -> None:
        """Remove all objects whose names begin with the folder `under`, if there are any."""
        path = f"{self._root}/{under}"
        with self._translated_errors(under):
            if self._files.get_file_info(path).type is fs.FileType.Directory:
                self._files.delete_dir(path)

    @contextmanager
    def _appearing(self, name: str) -> Iterator[Any]:
        """Yield a stream whose content becomes the object when all of it has been written."""
        path = self._path(name)
        part = f"{self._root}/{PARTS}/{secrets.token_hex(8)}"
        with self._translated_errors(name):
            for file in (path, part):
                self._files.create_dir(file.rpartition("/")[0], recursive=True)
            try:
                with self._files.open_output_stream(part) as stream:
                    yield stream
                if self._local:
                    # If the machine crashed after the move but before the content is on disk, the object would have its
                    # name but lack its content. So the content is forced to disk first.
                    sync(part)
                self._files.move(part, path)
                if self._local:
                    self._sync_names(name)
            except BaseException:
                if self._files.get_file_info(part).type is fs.FileType.File:
                    self._files.delete_file(part)
                raise

    def tidy(self, before: float) -> None:
        """Remove unfinished objects whose writing began before a time (seconds since the epoch)."""
        with self._translated_errors(PARTS):
            for info in self._listed(fs.FileSelector(f"{self._root}/{PARTS}", allow_not_found=True)):
                if info.mtime_ns / 1e9 < before:
                    with suppress(FileNotFoundError):
                        self._files.delete_file(info.path)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _sync_names(self, name: str) -> None:
        """Return when an object's name is on the disk, and those of the folders above it, which may be new."""
        for folder in Path(self._path(name)).parents[: len(PurePath(name).parts) + 1]:
            # A folder that this user may enter, but not read, was there before, so its name is on the disk already.
            with suppress(PermissionError):
                sync(folder)

    @contextmanager
    def _translated_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            where = f"{self.url}/{name}" if name else self.url
            raise UnavailableError(f"the object store can't be used at {where}: {error}") from error
