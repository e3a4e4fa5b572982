"""The reader of Delta tables: first a snapshot of the table, then what each version has changed.

A table records its changes if its property `delta.enableChangeDataFeed` is true. A version's part of the log names the
files in which its changes are; a version that only adds or only removes whole files has no others than these
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-data-files). The files are read in a fixed order, so
that a row has the same number each time: `deltalake`'s own reader of the feed returns rows in no order, by which no
position in a version would be possible. It is the oracle of the tests.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from caraway.dtypes.instants import instant_us
from caraway.errors import UnavailableError, shortened
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.ingest.sources.files.addresses import object_address
from caraway.ingest.sources.files.decoders import ABOUT_CONTENT, Decoding, decoder_of
from caraway.ingest.sources.files.keys import key_columns
from caraway.ingest.sources.files.stored import FileStore, StoreFile, VanishedError
from caraway.ingest.sources.files.stores import open_store
from caraway.ingest.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.ingest.sources.rounds import ReadInRounds, Rounds, place_of
from caraway.ingest.table import RowTable

# The most keys of one version that are compared, to tell a row that was replaced from one that was deleted. They take
# some 200 bytes each.
MAX_KEYS = 5_000_000
CHANGE_TYPE = "_change_type"
# Columns that the change data feed adds to those of the table.
ADDED = frozenset({CHANGE_TYPE, "_commit_version", "_commit_timestamp"})
FEED = "delta.enableChangeDataFeed"
BEGIN_ANEW = "raise the version of the dataset, whose source then begins anew with a snapshot of the table"


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file of the table, or of its changes.

    Attributes:
        path: The path below the table.
        partition: The values of the columns that aren't in the file, as texts, or None.
        size: The size in bytes.
        ops: The operation of each of its rows by their type of change, those of other types are left out; the type of
            rows without one is "".
    """

    path: str
    partition: tuple[tuple[str, str | None], ...]
    size: int
    ops: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """The files that are read of one version, in order, and the time of its commit in milliseconds."""

    number: int
    files: tuple[ChangeFile, ...]
    ts_ms: int


class DeltaReader(ReadInRounds):
    """Reads a Delta table (`SourceReader`).

    The position has a version, a file of it, and a row of the file. The first version that is read is a snapshot.
    """

    def __init__(
        self, connector: S3Connector | FilesConnector, context: SourceContext, *, rounds: Rounds | None = None
    ) -> None:
        """Prepare to read.

        Args:
            connector: The connector; its prefix is the table's folder.
            context: All else that the reader knows.
            rounds: The rounds, if they aren't those of the machine's clock.

        Raises:
            UnavailableError: The key is computed, so rows can't be compared.
        """
        self._connector = connector
        self._context = context
        self._rounds = rounds or Rounds(context.source.every_us)
        self._root = connector.prefix.rstrip("/")
        self._keys = key_columns(context, "a Delta table")
        self._store_: FileStore | None = None
        self._version: Version | None = None
        self._number = self._file = self._row = 0
        self._is_snapshot = False
        # The last version that this round reads.
        self._last = -1
        self._open: StoreFile | None = None
        self._rows: Iterator[tuple[int, dict[str, object]]] | None = None
        self._there: frozenset[tuple[object, ...]] | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on; the first time, begin with a snapshot of the version that is the newest now."""
        del items
        if not position:
            table = self._table(None)
            position = {"version": table.version(), "snapshot": True, "file": 0, "row": 0, "next": 0.0, "reading": True}
        self._number, self._file, self._row = (int(position[name]) for name in ("version", "file", "row"))
        self._is_snapshot = bool(position["snapshot"])
        self._rounds.go_on(position)
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows; see `SourceReader.poll`."""
        begun = time.monotonic()
        if not self._rounds.is_on:
            if not self._rounds.wait(timeout_s):
                return None
            self._rounds.begin()
            self._last = -1
        if self._last < 0:
            self._last = self._table(None).version()
        batch = self._read(rows, size)
        self._rounds.note(len(batch.rows), begun)
        return batch

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row isn't read yet, by its version, file and number."""
        return place_of(mark) >= (self._number, self._file, self._row)

    def progress(self) -> Progress | None:
        """Return how many bytes of the snapshot's files, or of a version's, are read."""
        if not self._rounds.is_on or self._version is None:
            return None
        sizes = [file.size for file in self._version.files]
        current = 0 if self._open is None else self._open.read_bytes
        done = sum(sizes[: self._file]) + min(current, sizes[self._file] if self._file < len(sizes) else 0)
        return Progress(done=done, total=sum(sizes), unit="bytes")

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows of the newest version, and check that the table records its changes."""
        table = self._table(None)
        self._number, self._file, self._row, self._is_snapshot = table.version(), 0, 0, True
        self._last, self._rounds.is_on = self._number, True
        return self._read(rows, 1 << 40)

    def close(self) -> None:
        """Close the file that is open."""
        self._rows = None
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _where(self) -> str:
        system = self._connector.system
        container = f"{self._connector.container_word} {self._connector.container}"
        return f"{system.kind} {system.name}, {container}, Delta table {self._root}"

    def _store(self) -> FileStore:
        if self._store_ is None:
            self._store_ = open_store(self._connector, self._context)
        return self._store_

    def _table(self, version: int | None) -> DeltaTable:
        """Open the table, and check that it can be read."""
        store = self._store()
        # A store that can't be read says so by itself; `deltalake` would ask it again and again before it does.
        store.check()
        try:
            url, options = object_address(self._connector, self._context, store, self._root)
            table = DeltaTable(url, version=version, storage_options=options)
            features = set(table.protocol().reader_features or ())
            configuration = table.metadata().configuration
        except TableNotFoundError as error:
            raise UnavailableError(f"{self._where} isn't there: {_text(error)}") from None
        except (DeltaError, OSError, ValueError) as error:
            raise UnavailableError(f"{self._where} can't be opened: {_text(error)}") from None
        if str(configuration.get(FEED)).lower() != "true":
            raise UnavailableError(
                f"{self._where} doesn't record its changes; ALTER TABLE ... SET TBLPROPERTIES ({FEED} = true) makes it "
                "do so"
            )
        if unknown := features & {"deletionVectors", "columnMapping"} or configuration.get("delta.columnMapping.mode"):
            raise UnavailableError(
                f"{self._where} uses {', '.join(sorted(unknown)) if isinstance(unknown, set) else 'columnMapping'}, "
                "which can't be read; switch it off and rewrite the table (REORG TABLE ... APPLY (PURGE))"
            )
        return table

    def _read(self, rows: int, size: int) -> SourceBatch:
        found: list[object] = []
        marks: list[str] = []
        origins: list[dict[str, object]] = []
        read = 0
        while len(found) < rows and read < size and self._rounds.is_on:
            if self._version is None and not self._next_version():
                self._rounds.end()
                break
            version = self._version
            assert version is not None  # noqa: S101 (there is one, or the round would be over)
            if self._file == len(version.files):
                self._version, self._there, self._is_snapshot = None, None, False
                self._number, self._file, self._row = self._number + 1, 0, 0
                continue
            file = version.files[self._file]
            before = 0 if self._open is None else self._open.read_bytes
            taken = self._next_row(version, file)
            read += max(0, (0 if self._open is None else self._open.read_bytes) - before)
            if taken is None:
                self.close()
                self._file, self._row = self._file + 1, 0
                continue
            number, row = taken
            self._row = number + 1
            marks.append(f"{version.number}-{self._file}/{number}")
            origins.append({"file": file.path, "row": number + 1, "version": version.number})
            found.append(row)
        return SourceBatch(
            rows=RowTable(found, {}),
            mark=marks.__getitem__,
            origin=origins.__getitem__,
            position=self._position(),
            size=read,
        )

    def _position(self) -> dict[str, Any]:
        return {
            "version": self._number,
            "snapshot": self._is_snapshot,
            "file": self._file,
            "row": self._row,
            **self._rounds.to_json(),
        }

    def _next_version(self) -> bool:
        """Find out what there is to read of the next version; return False if this round reads no further one."""
        if self._number > self._last:
            return False
        self._version = self._snapshot() if self._is_snapshot else self._changes()
        return True

    def _snapshot(self) -> Version:
        """Return the files of a version, whose rows are read as inserts."""
        table = self._table(self._number)
        actions = table.get_add_actions()
        names = actions.schema.names
        columns = {name: list(actions.column(name).to_pylist()) for name in ("path", "size_bytes", "modification_time")}
        empty: list[Any] = [{}] * len(columns["path"])
        partitions = list(actions.column("partition").to_pylist()) if "partition" in names else empty
        files = [
            ChangeFile(str(path), tuple((n, _partition_text(v)) for n, v in (p or {}).items()), int(size), (("", "r"),))
            for path, size, p in zip(columns["path"], columns["size_bytes"], partitions, strict=True)
        ]
        # The log of the version may be gone, so the time is that of the newest file.
        ts_ms = max(map(instant_us, columns["modification_time"]), default=0) // 1000
        return Version(self._number, tuple(sorted(files, key=lambda file: file.path)), ts_ms)

    def _changes(self) -> Version:
        """Return the files with the changes of a version, from its part of the log."""
        actions = self._log(self._number)
        added, removed, changed = (
            sorted((action[kind] for action in actions if kind in action), key=lambda file: str(file["path"]))
            for kind in ("add", "remove", "cdc")
        )
        for action in actions:
            configuration = action.get("metaData", {}).get("configuration", {FEED: "true"})
            if str(configuration.get(FEED)).lower() != "true":
                raise UnavailableError(
                    f"{self._where} has not recorded its changes since version {self._number}; set {FEED} to true, and "
                    f"{BEGIN_ANEW}"
                )
        if any(file.get("deletionVector") for file in (*added, *removed)):
            raise UnavailableError(f"{self._where}, version {self._number} has deletion vectors; {BEGIN_ANEW}")
        gone = {"delete": "d", "update_preimage": "d"}
        there = {"insert": "c", "update_postimage": "u"}
        files: list[ChangeFile]
        if changed:
            # Their files are read twice: first for the rows that are gone, then for those that are there.
            files = [_change_file(file, ops) for ops in (gone, there) for file in changed]
        else:
            files = [_change_file(file, {"": "d"}) for file in removed if file.get("dataChange")]
            files += [_change_file(file, {"": "c"}) for file in added if file.get("dataChange")]
        times = [action["commitInfo"]["timestamp"] for action in actions if "timestamp" in action.get("commitInfo", {})]
        written = [int(file.get("modificationTime") or file.get("deletionTimestamp") or 0) for file in added + removed]
        return Version(self._number, tuple(files), int(times[0]) if times else max(written, default=0))

    def _log(self, version: int) -> list[dict[str, Any]]:
        try:
            file = self._store().open(f"{self._root}/_delta_log/{version:020}.json".lstrip("/"))
            return [orjson.loads(line) for line in file.read().splitlines() if line.strip()]
        except VanishedError:
            raise UnavailableError(
                f"{self._where}: the log of version {version} is gone, so its changes aren't known; {BEGIN_ANEW}"
            ) from None
        except orjson.JSONDecodeError as error:
            raise UnavailableError(f"{self._where}: the log of version {version} is damaged: {error}") from None

    def _next_row(self, version: Version, file: ChangeFile) -> tuple[int, dict[str, object]] | None:
        """Return the next row of a file as an envelope, with its number."""
        if self._rows is None:
            self._rows = self._envelopes(version, file, self._row)
        try:
            return next(self._rows, None)
        except VanishedError:
            raise UnavailableError(
                f"{self._where}: {file.path} of version {version.number} is gone, probably by VACUUM; {BEGIN_ANEW}"
            ) from None
        except ABOUT_CONTENT as error:
            raise UnavailableError(f"{self._where}: {file.path} can't be read: {shortened(str(error))}") from None

    def _envelopes(self, version: Version, file: ChangeFile, first: int) -> Iterator[tuple[int, dict[str, object]]]:
        ops = dict(file.ops)
        is_gone = "d" in ops.values()
        there = self._keys_there(version) if is_gone and self._keys else frozenset()
        for number, row in self._rows_of(file, first):
            op = ops.get(str(row.get(CHANGE_TYPE, "")))
            if op is None or (is_gone and self._key(row) in there):
                continue
            values = {name: value for name, value in row.items() if name not in ADDED}
            sides = {"before": values, "after": None} if is_gone else {"before": None, "after": values}
            yield number, {"op": op, **sides, "source": {"ts_ms": version.ts_ms}}

    def _rows_of(
        self, file: ChangeFile, first: int, columns: frozenset[str] | None = None
    ) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the rows of a file from one on, with their numbers."""
        path = f"{self._root}/{unquote(file.path)}".lstrip("/")
        opened = self._store().open(path)
        if columns is None:
            self._open = opened
        partition = dict(file.partition)
        for piece in decoder_of("parquet")(path, opened, first, Decoding(columns=columns)):
            table = piece.table({})
            for at in range(len(piece)):
                row = table.row(at)
                assert isinstance(row, dict)  # noqa: S101 (of a Parquet file)
                yield piece.first + at, {**row, **partition}

    def _keys_there(self, version: Version) -> frozenset[tuple[object, ...]]:
        """Return the keys of the rows that a version has added or changed: rows of these keys aren't gone."""
        if self._there is None:
            keys: set[tuple[object, ...]] = set()
            for file in version.files:
                ops = dict(file.ops)
                if "d" in ops.values():
                    continue
                for _, row in self._rows_of(file, 0, frozenset(self._keys) | {CHANGE_TYPE}):
                    if ops.get(str(row.get(CHANGE_TYPE, ""))) is not None:
                        keys.add(self._key(row))
                if len(keys) > MAX_KEYS:
                    raise UnavailableError(
                        f"{self._where}: version {version.number} changes more than {MAX_KEYS:,} rows; {BEGIN_ANEW}"
                    )
            self._there = frozenset(keys)
        return self._there

    def _key(self, row: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(_hashable(row.get(name)) for name in self._keys)


def _change_file(action: Mapping[str, Any], ops: Mapping[str, str]) -> ChangeFile:
    partition = tuple((action.get("partitionValues") or {}).items())
    return ChangeFile(str(action["path"]), partition, int(action.get("size") or 0), tuple(ops.items()))


def _hashable(value: object) -> object:
    return orjson.dumps(value, default=str) if isinstance(value, (list, dict)) else value


def _partition_text(value: object) -> str | None:
    """Return the value of a partition as the log of a table has it."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(error: Exception) -> str:
    return shortened(str(error).partition("\n")[0])
