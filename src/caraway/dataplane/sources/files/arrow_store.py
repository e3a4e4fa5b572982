"""The stores that pyarrow opens: S3 and folders of the server's machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from caraway.dataplane.sources.files.endpoints import split_address
from caraway.dataplane.sources.files.stored import FileStore, StoredFile, StoreFile, VanishedError, opened_object
from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.systems import S3System

# The seconds for which a store's answer is awaited.
CONNECT_S, REQUEST_S = 10.0, 60.0


class ArrowStore(FileStore):
    """A bucket of S3, or a folder."""

    def __init__(self, files: Any, root: str, where: str) -> None:
        super().__init__(root, where)
        self._files = files

    def check(self) -> None:
        """Check that the bucket, container or folder is there and may be listed."""
        with self._translated_errors(""):
            if self._files.get_file_info(self.root).type is fs.FileType.NotFound:
                raise FileNotFoundError("there is none of this name, or it may not be seen")

    def listed(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """Return the files right in a folder, and the names of its subfolders; none if there is no such folder."""
        path = f"{self.root}/{folder}".rstrip("/")
        selector = fs.FileSelector(path, allow_not_found=True)
        with self._translated_errors(folder):
            found = self._files.get_file_info(selector)
        files, folders = [], []
        for info in found:
            relative = info.path[len(self.root) + 1 :]
            if info.type is fs.FileType.File:
                files.append(StoredFile(relative, int(info.size), int(info.mtime_ns or 0)))
            elif info.type is fs.FileType.Directory and info.path.rstrip("/") != path:
                # pyarrow lists an object whose name goes on with a slash, such as `raw//a.json`, as the folder itself.
                folders.append(info.path.rstrip("/").rpartition("/")[2])
        return files, folders

    def find(self, path: str) -> StoredFile | None:
        """Return a file as it is now; None if there is none."""
        with self._translated_errors(path):
            info = self._files.get_file_info(f"{self.root}/{path}")
        if info.type is not fs.FileType.File:
            return None
        return StoredFile(path, int(info.size), int(info.mtime_ns or 0))

    def open(self, path: str) -> StoreFile:
        """Open a file for reading. Raises `VanishedError` if it isn't there."""
        translated = partial(self._translated_errors, path)
        with translated():
            if not self.is_inside(path):
                raise FileNotFoundError(path)
            stream = self._files.open_input_file(f"{self.root}/{path}")
            size = int(stream.size())
        if isinstance(self._files, fs.LocalFileSystem):
            return StoreFile(stream, size, translated)
        return opened_object(size, lambda at, length: bytes(stream.read_at(length, at)), translated)

    def is_inside(self, path: str) -> bool:
        """Return whether a file is really in the folder, and not behind a link that leads out of it."""
        if not isinstance(self._files, fs.LocalFileSystem):
            return True
        return Path(self.root, path).resolve().is_relative_to(self.root)

    def is_link(self, folder: str) -> bool:
        """Return whether a folder is a link to another one, which could lead around in a circle."""
        return isinstance(self._files, fs.LocalFileSystem) and Path(self.root, folder).is_symlink()

    @contextmanager
    def _translated_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if path:
                raise VanishedError(path) from error
            raise UnavailableError(f"{self.where} isn't there, or may not be read: {first_line(error)}") from error
        except (OSError, pa.ArrowException, ValueError) as error:
            where = f"{self.where}, {path}" if path else self.where
            raise UnavailableError(f"{where} can't be read: {first_line(error)}") from error


def open_s3(system: S3System, bucket: str, where: str, context: SourceContext, endpoint: str | None) -> ArrowStore:
    """Open a bucket of S3. pyarrow raises errors of its own if it can't."""
    options: dict[str, Any] = {"connect_timeout": CONNECT_S, "request_timeout": REQUEST_S}
    if system.access_key_id is not None and system.secret_access_key is not None:
        options["access_key"] = context.resolve(system.access_key_id)
        options["secret_key"] = context.resolve(system.secret_access_key)
    if system.role_arn is not None:
        options["role_arn"] = system.role_arn
    if endpoint is None:
        options["region"] = fs.resolve_s3_region(bucket)
    else:
        scheme, host = split_address(endpoint)
        # A store of one's own has no regions, so any name of one will do. It has no hosts for its buckets either:
        # pyarrow names the bucket in the path.
        options |= {"endpoint_override": host, "scheme": scheme, "region": "us-east-1"}
    return ArrowStore(fs.S3FileSystem(**options), bucket, where)


def open_folder(folder: str, where: str, context: SourceContext) -> ArrowStore:
    """Open a folder of this machine, which must be in one that sources may read."""
    path = Path(folder).resolve()
    allowed = [Path(each).resolve() for each in context.local_folders]
    if not any(path.is_relative_to(each) for each in allowed):
        raise UnavailableError(
            f"{where}: the folder isn't in one that sources may read; the setting sources.local_folders has them: "
            f"{', '.join(map(str, allowed)) or 'none'}"
        )
    return ArrowStore(fs.LocalFileSystem(), str(path), where)


def first_line(error: Exception) -> str:
    """Return the first line of a message of pyarrow, without the details behind it."""
    return str(error).partition("\n")[0].partition(". Detail:")[0]
