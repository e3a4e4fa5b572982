"""Iceberg tables, opened from their folder in a store of files, or by their catalog."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from caraway.dataplane.objects.iceberg import open_catalog, table_identifier, translated_errors
from caraway.dataplane.sources.files.stored import FileStore, StoreFile, VanishedError
from caraway.dataplane.sources.files.stores import open_store
from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector, IcebergConnector, S3Connector
from caraway.graph.systems import FilesSystem, IcebergSystem

# The names of a table's metadata: those of Hadoop's catalogs (v3.metadata.json), and those of all others.
METADATA = re.compile(r"^(?:v(\d+)|(\d+)-.*?)(?:\.gz)?\.metadata\.json(?:\.gz)?$")
HINT = "version-hint.text"

AnyIceberg = S3Connector | FilesConnector | IcebergConnector


class IcebergTables:
    """Opens one table, anew at each call. All methods raise `UnavailableError` if it can't be read."""

    def __init__(self, connector: AnyIceberg, context: SourceContext) -> None:
        self._connector = connector
        self._context = context
        self._store: FileStore | None = None
        self._io: FileIO | None = None

    @property
    def where(self) -> str:
        """The table, for people."""
        connector = self._connector
        system = connector.system
        if isinstance(connector, IcebergConnector):
            return f"Iceberg {system.name}, table {connector.table}"
        container = f"{connector.container_word} {connector.container}"
        return f"{system.kind} {system.name}, {container}, Iceberg table {connector.prefix.rstrip('/')}"

    def load(self) -> Table:
        """Return the table as it is now."""
        connector = self._connector
        if not isinstance(connector, IcebergConnector):
            return self._in_folder(connector)
        system, context = connector.system, self._context
        assert isinstance(system, IcebergSystem)  # noqa: S101 (the planner refuses others)
        with translated_errors(self.where, system, context.resolve):
            # The catalog is opened anew, so that changed secrets take effect.
            catalog = open_catalog(
                system,
                context.resolve,
                endpoint=context.endpoints.get(system.name),
                local_folders=context.local_folders,
            )
            table = catalog.load_table(table_identifier(connector.table))
        self._io = table.io
        return table

    def open(self, location: str) -> StoreFile:
        """Open a file of the table. Raises `VanishedError` if it isn't there."""
        io = self._io
        assert io is not None  # noqa: S101 (the table was loaded before)
        if isinstance(io, StoreIO):
            return io.new_input(location).open()
        translated = partial(_translated, self.where, location)
        with translated():
            stream: Any = io.new_input(location).open()
            return StoreFile(stream, stream.size(), translated)

    def _in_folder(self, connector: S3Connector | FilesConnector) -> Table:
        if self._store is None:
            self._store = open_store(connector, self._context)
        store = self._store
        io = StoreIO(store, connector, self.where)
        self._io = io
        location = io.location(self._newest(store, f"{connector.prefix.rstrip('/')}/metadata"))
        with translated_errors(self.where), _there(self.where):
            metadata = FromInputFile.table_metadata(io.new_input(location))
            return Table(("table",), metadata, location, io, NoopCatalog("folder"))

    def _newest(self, store: FileStore, folder: str) -> str:
        """Return the path of the newest metadata of a table in a folder."""
        files = {file.path.rpartition("/")[2]: file for file in store.listed(folder)[0]}
        found = {name: int(match[1] or match[2]) for name in files if (match := METADATA.match(name))}
        if not found:
            store.check()
            raise UnavailableError(
                f"{self.where} isn't there: no *.metadata.json is in {folder}; give the folder of a table as the prefix"
            )
        if HINT in files:
            # The hint may name a file. If it has a number, the greatest version of that naming counts instead, since a
            # writer may crash before it has written the hint.
            hint = store.open(files[HINT].path).read().decode(errors="replace").strip()
            if hint.endswith(".metadata.json") and hint in found:
                return files[hint].path
            versions = {name: number for name, number in found.items() if name.startswith("v")}
            found = versions or found
        newest = max(found, key=lambda name: (found[name], files[name].written_ns, name))
        return files[newest].path


class StoreIO(FileIO):
    """The files of a table in a store: those of its own bucket, container or folder, and no others."""

    def __init__(self, store: FileStore, connector: S3Connector | FilesConnector, where: str) -> None:
        super().__init__({})
        self._store = store
        self._container = connector.container
        self._is_local = isinstance(connector.system, FilesSystem)
        self._where = where

    def location(self, path: str) -> str:
        """Return the location of a file of the store."""
        return f"{self._store.root}/{path}" if self._is_local else f"store://{self._container}/{path}"

    def new_input(self, location: str) -> "StoreInput":
        """Return a file for reading."""
        return StoreInput(location, self._store, self._path(location))

    def new_output(self, location: str) -> OutputFile:
        """Refuse to write."""
        raise UnavailableError(f"{self._where}: {location} is only read")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse to delete."""
        raise UnavailableError(f"{self._where}: {location} is only read")

    def _path(self, location: str) -> str:
        parts = urlsplit(location.replace("?", "%3F").replace("#", "%23"))
        if self._is_local:
            path = location.removeprefix("file:") if parts.scheme == "file" else location
            path = "/" + path.lstrip("/")
            if parts.scheme in {"", "file"} and path.startswith(f"{self._store.root}/"):
                return path[len(self._store.root) + 1 :]
        elif parts.scheme and parts.netloc.partition("@")[0] == self._container:
            return location.partition("://")[2].partition("/")[2]
        raise UnavailableError(
            f"{self._where}: its file {location} is elsewhere, so it isn't read; a table that was copied or moved has "
            "to be registered or written anew, and one in several buckets is read by its catalog"
        )


class StoreInput(InputFile):
    """A file of a store, as `pyiceberg` reads it."""

    def __init__(self, location: str, store: FileStore, path: str) -> None:
        super().__init__(location)
        self._store = store
        self._path = path

    def __len__(self) -> int:
        found = self._store.find(self._path)
        return 0 if found is None else found.size

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._store.find(self._path) is not None

    def open(self, seekable: bool = True) -> StoreFile:  # noqa: FBT001, FBT002 (as pyiceberg has it)
        """Open the file."""
        del seekable
        return self._store.open(self._path)


@contextmanager
def _translated(where: str, location: str) -> Iterator[None]:
    """Raise errors of a catalog's files as those of other stores are raised."""
    try:
        yield
    except FileNotFoundError as error:
        raise VanishedError(location) from error
    except (OSError, pa.ArrowException, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise UnavailableError(f"{where}, {location} can't be read: {text}") from None


@contextmanager
def _there(where: str) -> Iterator[None]:
    """Raise an error about a file of the metadata that is gone."""
    try:
        yield
    except VanishedError as error:
        raise UnavailableError(f"{where}: the file {error} is gone") from None
