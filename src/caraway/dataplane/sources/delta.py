"""The reader of Delta tables: first a snapshot of the table, then what each version has changed.

A table records its changes if its property `delta.enableChangeDataFeed` is true. A version's part of the log names the
files in which its changes are; a version that only adds or only removes whole files has no others than these
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-data-files). The files are read in a fixed order, so
that a row has the same number each time: `deltalake`'s own reader of the feed returns rows in no order, by which no
position in a version would be possible. It is the oracle of the tests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from caraway.dataplane.sources.files.addresses import object_address
from caraway.dataplane.sources.files.decoders import ABOUT_CONTENT, Decoding, decoder_of
from caraway.dataplane.sources.files.keys import key_columns
from caraway.dataplane.sources.files.pieces import ArrowInserts, ArrowTable, cast_types
from caraway.dataplane.sources.files.stored import FileStore, StoreFile, VanishedError
from caraway.dataplane.sources.files.stores import open_store
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.dataplane.sources.rounds import PolledInRounds, Rounds, place_of
from caraway.dataplane.sources.snapshots.batches import Part, batch_of, deleted
from caraway.dataplane.sources.snapshots.rows import Rows
from caraway.dtypes.instants import instant_us
from caraway.errors import UnavailableError, shortened
from caraway.graph.connectors import FilesConnector, S3Connector

# The most keys of one version that are compared, to tell a row that was replaced from one that was deleted. A key takes
# some 200 bytes of memory.
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

    @property
    def is_gone(self) -> bool:
        """True if its rows are those that are gone."""
        return any(op == "d" for _, op in self.ops)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows of a file that are changes, and the operation of each."""

    rows: Rows
    ops: Sequence[str]

    def cut(self, start: int, stop: int) -> "Changes":
        """Return the changes from one up to another one."""
        return Changes(self.rows.cut(start, stop), self.ops[start:stop])


@dataclass(frozen=True, slots=True)
class Version:
    """The files that are read of one version, in order, and the time of its commit in milliseconds."""

    number: int
    files: tuple[ChangeFile, ...]
    ts_ms: int


class DeltaReader(PolledInRounds):
    """Reads a Delta table (`SourceReader`).

    The position has a version, a file of it, and a row of the file. The first version that is read is a snapshot.
    """

    reads_ahead = True

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
        self._types = cast_types(context.dataset, context.source)
        self._store_: FileStore | None = None
        self._version: Version | None = None
        self._number = self._file = self._row = 0
        self._is_snapshot = False
        # The last version that this round reads; -1 if it isn't known.
        self._last = -1
        self._open: StoreFile | None = None
        # `_changed` yields the changes of the file that is being read. `_left` has those that were decoded and aren't
        # handed over yet.
        self._changed: Iterator[Changes] | None = None
        self._left: Changes | None = None
        self._there: frozenset[object] | None = None

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
        self._changed = self._left = None
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
        # This check fails at once if the store can't be read. `deltalake` would repeat its requests for some time
        # before it fails.
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

    def _prepare(self) -> None:
        if self._last < 0:
            self._last = self._table(None).version()

    def _read(self, rows: int, size: int) -> SourceBatch:
        parts: list[Part] = []
        left, read = rows, 0
        while left > 0 and read < size and self._rounds.is_on:
            if self._version is None and not self._next_version():
                self._rounds.end()
                self._last = -1
                break
            version = self._version
            assert version is not None  # noqa: S101 (there is one, or the round would be over)
            if self._file == len(version.files):
                self._version, self._there, self._is_snapshot = None, None, False
                self._number, self._file, self._row = self._number + 1, 0, 0
                continue
            file = version.files[self._file]
            before = 0 if self._open is None else self._open.read_bytes
            some = self._next_rows(version, file, left)
            read += max(0, (0 if self._open is None else self._open.read_bytes) - before)
            if some is None:
                self.close()
                self._file, self._row = self._file + 1, 0
                continue
            left -= len(some.rows.numbers)
            self._row = int(some.rows.numbers[-1]) + 1
            parts.append(self._part(version, file, some))
        return batch_of(parts, self._position(), read, is_fence=False)

    def _part(self, version: Version, file: ChangeFile, some: Changes) -> Part:
        batch, ts_ms = some.rows.batch, version.ts_ms
        inserts = not file.is_gone
        return Part(
            prefix=f"{version.number}-{self._file}",
            origin={"file": file.path, "version": version.number},
            numbers=some.rows.numbers,
            table=ArrowInserts(batch, self._types, some.ops, ts_ms) if inserts else deleted(batch, self._types, ts_ms),
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
            # A `ChangeFile` has either the deletes or the inserts of a file, so each file is listed twice. The deletes
            # of a version come before its inserts.
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

    def _next_rows(self, version: Version, file: ChangeFile, most: int) -> Changes | None:
        """Return the next rows of a file that are changes, at most so many; None if there are no more."""
        if self._changed is None:
            self._changed = self._changes_of(version, file, self._row)
        try:
            found = self._left or next(self._changed, None)
        except VanishedError:
            raise UnavailableError(
                f"{self._where}: {file.path} of version {version.number} is gone, probably by VACUUM; {BEGIN_ANEW}"
            ) from None
        except ABOUT_CONTENT as error:
            raise UnavailableError(f"{self._where}: {file.path} can't be read: {shortened(str(error))}") from None
        self._left = None
        if found is not None and len(found.ops) > most:
            found, self._left = found.cut(0, most), found.cut(most, len(found.ops))
        return found

    def _changes_of(self, version: Version, file: ChangeFile, first: int) -> Iterator[Changes]:
        """Yield the changes in a file, from a row on. A row that is gone is none if the version has its key again."""
        there = self._keys_there(version) if file.is_gone and self._keys else frozenset()
        for rows in self._rows_of(file, first):
            ops = _ops(file, rows.batch)
            chosen = [op is not None for op in ops]
            if there:
                keys = self._keys_of(rows.batch)
                chosen = [is_one and key not in there for is_one, key in zip(chosen, keys, strict=True)]
            some = rows.chosen(np.array(chosen))
            if len(some.numbers):
                kept = [name for name in some.batch.schema.names if name not in ADDED]
                yield Changes(
                    Rows(some.numbers, some.batch.select(kept)),
                    [op for op, is_one in zip(ops, chosen, strict=True) if is_one and op is not None],
                )

    def _rows_of(self, file: ChangeFile, first: int, columns: frozenset[str] | None = None) -> Iterator[Rows]:
        """Yield the rows of a file from one on, with the columns that aren't in the file."""
        path = f"{self._root}/{unquote(file.path)}".lstrip("/")
        opened = self._store().open(path)
        if columns is None:
            self._open = opened
        for piece in decoder_of("parquet")(path, opened, first, Decoding(columns=columns)):
            batch = _without_views(piece.rows)
            for name, text in file.partition:
                values = pa.repeat(pa.scalar(text, pa.string()), len(piece))
                at = batch.schema.get_field_index(name)
                batch = batch.append_column(name, values) if at < 0 else batch.set_column(at, name, values)
            yield Rows(np.arange(piece.first, piece.first + len(piece)), batch)

    def _keys_there(self, version: Version) -> frozenset[object]:
        """Return the keys of the rows that a version has added or changed: rows of these keys aren't gone."""
        if self._there is None:
            keys: set[object] = set()
            for file in version.files:
                if file.is_gone:
                    continue
                for rows in self._rows_of(file, 0, frozenset(self._keys) | {CHANGE_TYPE}):
                    found = zip(_ops(file, rows.batch), self._keys_of(rows.batch), strict=True)
                    keys.update(key for op, key in found if op is not None)
                    if len(keys) > MAX_KEYS:
                        raise UnavailableError(
                            f"{self._where}: version {version.number} changes more than {MAX_KEYS:,} rows; {BEGIN_ANEW}"
                        )
            self._there = frozenset(keys)
        return self._there

    def _keys_of(self, batch: Any) -> Iterator[object]:
        """Yield the key of each row; columns that aren't there are null."""
        names, rows = batch.schema.names, ArrowTable(batch)
        columns = [rows.column(n, 0, len(rows)) if n in names else [None] * len(rows) for n in self._keys]
        return zip(*([_hashable(value) for value in column] for column in columns), strict=True)


def _without_views(batch: Any) -> Any:
    """Return a batch without views of texts, which `deltalake` writes and which Arrow can't choose rows of."""
    plain = pa.schema([each.with_type(_without_view(each.type)) for each in batch.schema])
    return batch if plain.equals(batch.schema) else batch.cast(plain)


def _without_view(kind: Any) -> Any:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_without_view(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_view(kind.value_type)))
    if pa.types.is_map(kind):
        value = kind.item_field.with_type(_without_view(kind.item_type))
        return pa.map_(kind.key_field.with_type(_without_view(kind.key_type)), value)
    return kind


def _ops(file: ChangeFile, batch: Any) -> list[str | None]:
    """Return the operation of each row, None for a row that is no change."""
    ops = dict(file.ops)
    if CHANGE_TYPE not in batch.schema.names:
        return [ops.get("")] * len(batch)
    return [ops.get(str(each)) for each in batch.column(CHANGE_TYPE).to_pylist()]


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
