"""The stores of files: S3, Google Cloud Storage, Azure and folders of the server's machine, opened by pyarrow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, assert_never
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from caraway.errors import UnavailableError
from caraway.graph.connectors import Connector, FilesConnector, S3Connector
from caraway.graph.systems import AzureSystem, FilesSystem, GCSSystem, RegisteredSystem, S3System
from caraway.ingest.sources.reader import SourceContext

# The seconds for which a store's answer is awaited.
CONNECT_S, REQUEST_S = 10.0, 60.0


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
    """A bucket, container or folder. All methods raise `UnavailableError` if it doesn't answer or refuses."""

    def __init__(self, files: Any, root: str, where: str) -> None:
        self.files = files
        self.root = root
        self.where = where

    def check(self) -> None:
        """Check that the bucket, container or folder is there and may be listed."""
        with self._translated_errors(""):
            if self.files.get_file_info(self.root).type is fs.FileType.NotFound:
                raise FileNotFoundError("there is none of this name, or it may not be seen")

    def listed(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """Return the files right in a folder, and the names of its subfolders; none if there is no such folder."""
        path = f"{self.root}/{folder}".rstrip("/")
        selector = fs.FileSelector(path, allow_not_found=True)
        with self._translated_errors(folder):
            found = self.files.get_file_info(selector)
        files, folders = [], []
        for info in found:
            relative = info.path[len(self.root) + 1 :]
            if info.type is fs.FileType.File:
                files.append(StoredFile(relative, int(info.size), int(info.mtime_ns or 0)))
            elif info.type is fs.FileType.Directory:
                folders.append(info.path.rstrip("/").rpartition("/")[2])
        return files, folders

    def find(self, path: str) -> StoredFile | None:
        """Return a file as it is now; None if there is none."""
        with self._translated_errors(path):
            info = self.files.get_file_info(f"{self.root}/{path}")
        if info.type is not fs.FileType.File:
            return None
        return StoredFile(path, int(info.size), int(info.mtime_ns or 0))

    def open(self, path: str) -> "StoreFile":
        """Open a file for reading. Raises `VanishedError` if it isn't there."""
        translated = partial(self._translated_errors, path)
        with translated():
            if not is_inside(self, path):
                raise FileNotFoundError(path)
            return StoreFile(self.files.open_input_file(f"{self.root}/{path}"), translated)

    @contextmanager
    def _translated_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if path:
                raise VanishedError(path) from error
            raise UnavailableError(f"{self.where} isn't there, or may not be read: {_first_line(error)}") from error
        except (OSError, pa.ArrowException, ValueError) as error:
            where = f"{self.where}, {path}" if path else self.where
            raise UnavailableError(f"{where} can't be read: {_first_line(error)}") from error


class StoreFile:
    """An open file, as Python's files are. Errors of the store are `UnavailableError`, so that all others that a
    decoder raises are about the content.
    """  # noqa: D205 (one sentence more than a line holds)

    closed = False

    def __init__(self, stream: Any, translated: Any) -> None:
        self._stream = stream
        self._translated = translated
        self.size: int = stream.size()
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


def open_store(connector: Connector, context: SourceContext) -> FileStore:
    """Open the store of a connector.

    Raises:
        UnavailableError: A secret can't be looked up, or the folder isn't one that sources may read.
        UnknownEntityError: A secret doesn't exist.
    """
    assert isinstance(connector, S3Connector | FilesConnector)  # noqa: S101 (the reader is only that of these)
    system, container = connector.system, connector.container
    where = f"{system.kind} {system.name}, {connector.container_word} {container}"
    endpoint = context.endpoints.get(system.name)
    try:
        match system:
            case S3System():
                return FileStore(_s3(system, container, context, endpoint), container, where)
            case GCSSystem():
                return FileStore(_gcs(endpoint), container, where)
            case AzureSystem():
                return FileStore(_azure(system, context, endpoint), container, where)
            case FilesSystem():
                return FileStore(fs.LocalFileSystem(), _local(container, context, where), where)
            case RegisteredSystem():
                raise UnavailableError(f"{where}: no {system.kind} is registered under this name on the server")
            case _:
                assert_never(system)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnavailableError(f"{where} can't be opened: {_first_line(error)}") from None


def _s3(system: S3System, bucket: str, context: SourceContext, endpoint: str | None) -> Any:
    options: dict[str, Any] = {"connect_timeout": CONNECT_S, "request_timeout": REQUEST_S}
    if system.access_key_id is not None and system.secret_access_key is not None:
        options["access_key"] = context.resolve(system.access_key_id)
        options["secret_key"] = context.resolve(system.secret_access_key)
    if system.role_arn is not None:
        options["role_arn"] = system.role_arn
    if endpoint is None:
        options["region"] = fs.resolve_s3_region(bucket)
    else:
        scheme, host = _address(endpoint)
        # A store of one's own has neither regions nor a name for each bucket; pyarrow addresses buckets by path.
        options |= {"endpoint_override": host, "scheme": scheme, "region": "us-east-1"}
    return fs.S3FileSystem(**options)


def _gcs(endpoint: str | None) -> Any:
    if endpoint is None:
        return fs.GcsFileSystem()
    scheme, host = _address(endpoint)
    return fs.GcsFileSystem(anonymous=True, endpoint_override=host, scheme=scheme)


def _azure(system: AzureSystem, context: SourceContext, endpoint: str | None) -> Any:
    options: dict[str, Any] = {"account_name": system.account_name}
    if system.account_key is not None:
        options["account_key"] = context.resolve(system.account_key)
    if endpoint is not None:
        scheme, host = _address(endpoint)
        options |= {f"{part}_storage_authority": host for part in ("blob", "dfs")}
        options |= {f"{part}_storage_scheme": scheme for part in ("blob", "dfs")}
    return fs.AzureFileSystem(**options)


def _address(endpoint: str) -> tuple[str, str]:
    """Return the scheme and the host of an address, which may be "host:port" alone."""
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    return parts.scheme, parts.netloc


def _local(folder: str, context: SourceContext, where: str) -> str:
    """Return the real path of a folder of this machine, which must be in one that sources may read."""
    path = Path(folder).resolve()
    allowed = [Path(each).resolve() for each in context.local_folders]
    if not any(path.is_relative_to(each) for each in allowed):
        raise UnavailableError(
            f"{where}: the folder isn't in one that sources may read; the setting sources.local_folders has them: "
            f"{', '.join(map(str, allowed)) or 'none'}"
        )
    return str(path)


def is_inside(store: FileStore, path: str) -> bool:
    """Return whether a file is really in the folder of its store, and not behind a link that leads out of it."""
    if not isinstance(store.files, fs.LocalFileSystem):
        return True
    return Path(store.root, path).resolve().is_relative_to(store.root)


def is_link(store: FileStore, folder: str) -> bool:
    """Return whether a folder is a link to another one, which could lead around in a circle."""
    return isinstance(store.files, fs.LocalFileSystem) and Path(store.root, folder).is_symlink()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". Detail:")[0]
