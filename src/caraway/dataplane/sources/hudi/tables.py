"""Hudi tables, opened by the library `hudi` from their folder in a store of files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
from hudi import HudiReadOptions, HudiTable, HudiTableBuilder

from caraway.dataplane.sources.files.addresses import object_address
from caraway.dataplane.sources.files.decoders import ABOUT_CONTENT
from caraway.dataplane.sources.files.stored import FileStore, VanishedError
from caraway.dataplane.sources.files.stores import open_store
from caraway.dataplane.sources.hudi.timeline import Timeline, timeline_of
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW
from caraway.errors import UnavailableError, shortened
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.systems import FilesSystem

# The class of the errors that the library raises, which it doesn't export.
CORE_ERROR = "HudiCoreError"
# The most file groups of a table. Each takes some kilobytes of memory.
MAX_GROUPS = 200_000
LISTS_FILES = "hoodie.metadata.enable"
# Properties of a table, and the values of them that can be read. With other values, the reader or the library would
# read wrong rows, or none. The table's properties override the options with which the library opens it.
ONLY: Mapping[str, tuple[str, ...]] = {
    "hoodie.table.type": ("COPY_ON_WRITE",),
    "hoodie.table.version": ("8", "6"),
    "hoodie.table.base.file.format": ("PARQUET", "parquet"),
    "hoodie.table.multiple.base.file.formats.enable": ("false",),
    "hoodie.populate.meta.fields": ("true",),
    "hoodie.datasource.write.drop.partition.columns": ("false",),
    "hoodie.bootstrap.base.path": ("",),
    LISTS_FILES: ("false",),
}


class HudiFolder:
    """Opens one table, anew at each call. All methods raise `UnavailableError` if it can't be read."""

    def __init__(self, connector: S3Connector | FilesConnector, context: SourceContext) -> None:
        self._connector = connector
        self._context = context
        self.root = connector.prefix.rstrip("/")
        """The folder in the store."""

    @property
    def where(self) -> str:
        """The table, for people."""
        connector = self._connector
        container = f"{connector.container_word} {connector.container}"
        return f"{connector.system.kind} {connector.system.name}, {container}, Hudi table {self.root}"

    @cached_property
    def store(self) -> FileStore:
        """The store in which the table is."""
        return open_store(self._connector, self._context)

    def open(self) -> "OpenTable":
        """Return the table as it is now, and its timeline. It is refused if it can't be read right."""
        properties = f"{self.root}/.hoodie/hoodie.properties"
        if self.store.find(properties) is None:
            self.store.check()
            raise UnavailableError(
                f"{self.where} isn't there: there is no {properties}; give the folder of a table as the prefix"
            )
        self.check_inside(properties)
        url, options = object_address(self._connector, self._context, self.store, self.root)
        if isinstance(self._connector.system, FilesSystem):
            # The library decodes the escapes of an address, and takes a path as it is. So a folder is given as a path.
            url = url.removeprefix("file://")
        with self.translated():
            # The table's own list of files has only those of its newest instant, so the library lists the folders
            # instead.
            builder = HudiTableBuilder.from_base_uri(url).with_hudi_option(LISTS_FILES, "false")
            table = builder.with_storage_options(options or {}).build()
            found = table.hudi_options()
        # A base path among the properties would lead the library to another folder.
        for name, values in {**ONLY, "hoodie.base.path": (url,)}.items():
            if (value := found.get(name, values[0])) not in values:
                raise UnavailableError(
                    f"{self.where} has {name}={shortened(value)}, which isn't read; write a table with "
                    f"{name}={values[0]}, and read that one"
                )
        return OpenTable(self, table, self._timeline(found))

    def _timeline(self, properties: Mapping[str, str]) -> Timeline:
        folder = f"{self.root}/.hoodie"
        if properties["hoodie.table.version"] != "6":
            folder = f"{folder}/{properties.get('hoodie.timeline.path', 'timeline')}"
        self.check_inside(folder)
        try:
            files, _ = self.store.listed(folder)
        except VanishedError:
            files = []
        return timeline_of(file.path.rpartition("/")[2] for file in files)

    def check_inside(self, path: str) -> None:
        """Check that a path of the store doesn't lead out of it by a link."""
        if not self.store.is_inside(path):
            raise UnavailableError(f"{self.where}: {path} leads to another folder, so it isn't read")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of the library as `UnavailableError`."""
        try:
            yield
        except Exception as error:
            is_of_library = type(error).__name__ == CORE_ERROR
            if isinstance(error, UnavailableError) or not (is_of_library or isinstance(error, ABOUT_CONTENT)):
                raise
            text = shortened(str(error).partition("\n")[0])
            raise UnavailableError(f"{self.where} can't be read: {text}") from None


class OpenTable:
    """A table as it was when it was opened. All methods raise `UnavailableError` if it can't be read.

    Attributes:
        folder: The folder that has opened it.
        timeline: Its timeline, which was listed before the files are.
        schema: Its columns, without those that Hudi adds.
    """

    def __init__(self, folder: HudiFolder, table: HudiTable, timeline: Timeline) -> None:
        self.folder = folder
        self.timeline = timeline
        self._table = table
        self.schema: Any = pa.schema([])
        if timeline.done:
            with folder.translated():
                self.schema = table.get_schema()

    @property
    def where(self) -> str:
        """The table, for people."""
        return self.folder.where

    def slices(self, at: str) -> list[Any]:
        """Return the file slices as of an instant, as the library has them."""
        with self.folder.translated():
            found = self._table.get_file_slices(HudiReadOptions().with_as_of_timestamp(at))
        if len(found) > MAX_GROUPS:
            raise UnavailableError(
                f"{self.where} has {len(found):,} file groups, {MAX_GROUPS:,} are possible; cluster the table"
            )
        return found

    def metadata(self, at: str) -> Mapping[str, Any]:
        """Return what the timeline has about an instant that has completed."""
        instant = self._instants.get(at)
        if instant is None:
            raise UnavailableError(f"{self.where}: the instant {at} is gone from the timeline; {BEGIN_ANEW}")
        with self.folder.translated():
            found: Mapping[str, Any] = orjson.loads(self._table.get_timeline().get_instant_metadata_in_json(instant))
        return found

    @cached_property
    def _instants(self) -> Mapping[str, Any]:
        with self.folder.translated():
            lists = self._table.get_timeline()
            commits = (
                lists.get_completed_commits(),
                lists.get_completed_deltacommits(),
                lists.get_completed_replacecommits(),
            )
        return {each.timestamp: each for some in commits for each in some}
