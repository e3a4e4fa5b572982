"""Hudi tables, opened by the library `hudi` from their folder in a store of files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa
from hudi import HudiReadOptions, HudiTable, HudiTableBuilder

from caraway.errors import UnavailableError, shortened
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.systems import FilesSystem
from caraway.ingest.sources.files.addresses import object_address
from caraway.ingest.sources.files.decoders import ABOUT_CONTENT
from caraway.ingest.sources.files.stored import FileStore, VanishedError
from caraway.ingest.sources.files.stores import open_store
from caraway.ingest.sources.hudi.timeline import Timeline, timeline_of
from caraway.ingest.sources.reader import SourceContext
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW

# The class of the errors that the library raises, which it doesn't export.
CORE_ERROR = "HudiCoreError"
# The most file groups of a table. Some kilobytes are kept of each.
MAX_GROUPS = 200_000
# The columns that Hudi adds to those of the table.
META = "_hoodie_"
RECORD_KEY = "_hoodie_record_key"
VERSIONS = frozenset({"6", "8"})
LISTS_FILES = "hoodie.metadata.enable"
MERGED = "MERGE_ON_READ"
KINDS = ("COPY_ON_WRITE", MERGED)
# The most bytes of the file of properties.
MAX_PROPERTIES = 1 << 20
DEFAULT_PAYLOADS = frozenset({"DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload"})
# The properties with which the library would read wrong rows, or none; with the only values that it reads right.
ONLY: Mapping[str, str] = {
    "hoodie.table.base.file.format": "parquet",
    "hoodie.table.multiple.base.file.formats.enable": "false",
    "hoodie.populate.meta.fields": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.bootstrap.base.path": "",
}


class HudiFolder:
    """Opens one table, anew at each call. All methods raise `UnavailableError` if it can't be read."""

    def __init__(self, connector: S3Connector | FilesConnector, context: SourceContext) -> None:
        self._connector = connector
        self._context = context
        self._root = connector.prefix.rstrip("/")
        self._store: FileStore | None = None

    @property
    def where(self) -> str:
        """The table, for people."""
        connector = self._connector
        container = f"{connector.container_word} {connector.container}"
        return f"{connector.system.kind} {connector.system.name}, {container}, Hudi table {self._root}"

    def open(self) -> "OpenTable":
        """Return the table as it is now, and its timeline. It is refused if it can't be read right."""
        store = self._store = self._store or open_store(self._connector, self._context)
        properties = f"{self._root}/.hoodie/hoodie.properties"
        if store.find(properties) is None:
            store.check()
            raise UnavailableError(
                f"{self.where} isn't there: there is no {properties}; give the folder of a table as the prefix"
            )
        settings = self._settings(properties)
        self._check(settings)
        url, options = object_address(self._connector, self._context, store, self._root)
        if isinstance(self._connector.system, FilesSystem):
            # The library takes a path as it is, and an address by its escapes.
            url = url.removeprefix("file://")
        with self.translated():
            # The table's own list of files belongs to its newest instant, so files are listed from the folders.
            builder = HudiTableBuilder.from_base_uri(url).with_hudi_option(LISTS_FILES, "false")
            table = builder.with_storage_options(options or {}).build()
            found = table.hudi_options()
        # Properties of the table win over options, and could lead the library to any other folder.
        for name, value in ((LISTS_FILES, "false"), ("hoodie.base.path", url)):
            if found.get(name) != value:
                raise UnavailableError(
                    f"{self.where} has {name}={shortened(found.get(name, ''))} in {properties}, which isn't read; "
                    "remove it there"
                )
        return OpenTable(self, table, settings)

    def listed(self, properties: Mapping[str, str]) -> Timeline:
        """Return the timeline as it is now."""
        assert self._store is not None  # noqa: S101 (the table was opened before)
        folder, version = f"{self._root}/.hoodie", int(properties["hoodie.table.version"])
        if version > 6:
            folder = f"{folder}/{properties.get('hoodie.timeline.path', 'timeline')}"
        self.check_inside(folder)
        try:
            files, _ = self._store.listed(folder)
        except VanishedError:
            files = []
        return timeline_of(files, version)

    def check_inside(self, path: str) -> None:
        """Check that a path of the store doesn't lead out of it by a link."""
        assert self._store is not None  # noqa: S101 (as above)
        if not self._store.is_inside(path):
            raise UnavailableError(f"{self.where}: {path} leads to another folder, so it isn't read")

    def path(self, relative: str) -> str:
        """Return the path in the store of a file of the table."""
        return f"{self._root}/{relative}"

    def _settings(self, path: str) -> Mapping[str, str]:
        """Return the properties of the table."""
        assert self._store is not None  # noqa: S101 (the caller has opened it)
        self.check_inside(path)
        try:
            lines = self._store.open(path).read(MAX_PROPERTIES).decode(errors="replace").splitlines()
        except VanishedError:
            raise UnavailableError(f"{self.where}: {path} is being written anew; it is read again") from None
        found = (line.partition("=") for line in lines if not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in found}

    def _check(self, properties: Mapping[str, str]) -> None:
        """Raise `UnavailableError` if the library can't read the table right."""
        version = properties.get("hoodie.table.version", "unknown")
        if version not in VERSIONS:
            raise UnavailableError(
                f"{self.where} has the version {version}, {' and '.join(sorted(VERSIONS))} can be "
                "read; write it with hoodie.write.table.version=8 (or upgrade it by CALL upgrade_table)"
            )
        for name, only in ONLY.items():
            if properties.get(name, only).lower() != only:
                wanted = only or "nothing"
                raise UnavailableError(
                    f"{self.where} has {name}={properties[name]}, which can't be read; write a new table with {wanted} "
                    "there, and read that one"
                )
        kind = properties.get("hoodie.table.type", "")
        if kind not in KINDS:
            raise UnavailableError(f"{self.where} has the type {kind}, {' and '.join(KINDS)} can be read")
        payload = properties.get("hoodie.compaction.payload.class", "").rpartition(".")[2]
        mode = properties.get("hoodie.record.merge.mode", "")
        if kind == MERGED and (mode == "CUSTOM" or (payload and payload not in DEFAULT_PAYLOADS)):
            raise UnavailableError(
                f"{self.where} merges rows by {payload or 'a merger of its own'}, which isn't known here; write it "
                "with hoodie.record.merge.mode=EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING, or as copy-on-write"
            )

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
            if "not found" in text.lower() or "NotFound" in text:
                text = f"a file is gone, which the cleaner has probably removed: {text}; {BEGIN_ANEW}"
            raise UnavailableError(f"{self.where} can't be read: {text}") from None


class OpenTable:
    """A table as it was when it was opened. All methods raise `UnavailableError` if it can't be read.

    Attributes:
        timeline: Its timeline, which was listed before the files are.
        is_merged: True for merge-on-read, whose rows are merged from several files.
        schema: Its columns, without those that Hudi adds.
    """

    def __init__(self, folder: HudiFolder, table: HudiTable, properties: Mapping[str, str]) -> None:
        self._folder = folder
        self._table = table
        self._properties = properties
        self.is_merged = properties["hoodie.table.type"] == MERGED
        self.timeline = folder.listed(properties)
        self.schema: Any = pa.schema([])
        if self.timeline.done:
            with folder.translated():
                self.schema = table.get_schema()
        self._instants: dict[str, Any] | None = None

    @property
    def where(self) -> str:
        """The table, for people."""
        return self._folder.where

    def slices(self, at: str) -> dict[tuple[str, str], Any]:
        """Return the file slices as of an instant, by their partitions and the ids of their file groups."""
        with self._folder.translated():
            found = self._table.get_file_slices(HudiReadOptions().with_as_of_timestamp(at))
        if len(found) > MAX_GROUPS:
            raise UnavailableError(
                f"{self.where} has {len(found):,} file groups, {MAX_GROUPS:,} are possible; cluster the table"
            )
        for each in found:
            if not each.base_file_name:
                raise UnavailableError(
                    f"{self.where}: the file group {each.file_id} has log files without a base file, which aren't "
                    f"read; compact the table, and {BEGIN_ANEW}"
                )
            for path in (each.base_file_relative_path(), *each.log_files_relative_paths()):
                self._folder.check_inside(self._folder.path(path))
        self._check_cleaner(at)
        return {(each.partition_path, each.file_id): each for each in found}

    def metadata(self, at: str) -> Mapping[str, Any]:
        """Return what the timeline has about an instant that has completed."""
        with self._folder.translated():
            if self._instants is None:
                lists = self._table.get_timeline()
                self._instants = {
                    each.timestamp: each
                    for some in (
                        lists.get_completed_commits(),
                        lists.get_completed_deltacommits(),
                        lists.get_completed_replacecommits(),
                    )
                    for each in some
                }
            instant = self._instants.get(at)
            if instant is None:
                raise UnavailableError(f"{self.where}: the instant {at} is gone from the timeline; {BEGIN_ANEW}")
            found: Mapping[str, Any] = orjson.loads(self._table.get_timeline().get_instant_metadata_in_json(instant))
        return found

    def batches(self, part: Any, at: str, columns: "list[str] | None") -> Iterator[Any]:
        """Yield the rows of a file slice as of an instant, as record batches; `columns` None: all, and Hudi's own."""
        options = HudiReadOptions().with_as_of_timestamp(at)
        if columns is not None:
            options = options.with_projection(columns)
        with self._folder.translated():
            reader = self._table.create_file_group_reader_with_options(options)
            yield from reader.read_file_slice_stream(part, options)

    def _check_cleaner(self, at: str) -> None:
        """Check that the cleaner removed no files of the state as of an instant while they were listed.

        It takes files away one by one. A log file that is gone couldn't be told from one that never was; base files
        are compared with what commits say. A cleaner that was asked before the instant only removes what had been
        replaced by then.
        """
        if not self.is_merged:
            return
        now = self._folder.listed(self._properties)
        active = now.cleans | self.timeline.cleans | (now.cleaned - self.timeline.cleaned)
        if any(clean > at for clean in active):
            raise UnavailableError(
                f"{self.where} is being cleaned while its rows as of the instant {at} are looked for; they are read "
                "when the cleaner has ended, if it leaves them"
            )
