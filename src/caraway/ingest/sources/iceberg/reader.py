"""The reader of Iceberg tables: first the rows of the newest snapshot, then what each further one has changed.

Snapshots are read one after another, and their data files in a fixed order, so that a row has the same number each time
(the number of the snapshot among those that were read, that of the file, and the row's in the file). With cdc "append"
and "upsert", rows that were added are read; with "native" also those that were removed. Files that were only written
anew, as by compaction, make no rows.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from caraway.errors import UnavailableError
from caraway.graph.sources import Cdc
from caraway.ingest.sources.files.keys import key_columns
from caraway.ingest.sources.iceberg.changes import ReadFile, changes, commits, history, live
from caraway.ingest.sources.iceberg.rows import OpenFile, needed
from caraway.ingest.sources.iceberg.tables import AnyIceberg, IcebergTables
from caraway.ingest.sources.reader import Items, Position, Progress, SourceBatch, SourceContext
from caraway.ingest.sources.rounds import ReadInRounds, Rounds, place_of
from caraway.ingest.sources.snapshots.batches import Part, batch_of, table_of
from caraway.ingest.sources.snapshots.columns import check_columns
from caraway.ingest.sources.snapshots.reading import Columns, SnapshotRows
from caraway.ingest.sources.snapshots.rows import BEGIN_ANEW, Rows

# The most snapshots of one batch: those without rows are passed over, but the position has to move.
BATCH_SNAPSHOTS = 100


class IcebergReader(ReadInRounds):
    """Reads an Iceberg table (`SourceReader`).

    The position has the last snapshot that was read in full (`done`) with its sequence number, the last one of the
    commit that is being read with a file of it and a row of the file, and how many snapshots were read (`number`).
    """

    def __init__(self, connector: AnyIceberg, context: SourceContext, *, rounds: Rounds | None = None) -> None:
        """Prepare to read.

        Args:
            connector: The folder of the table, or the table of a catalog.
            context: All else that the reader knows.
            rounds: The rounds, if they aren't those of the machine's clock.

        Raises:
            UnavailableError: The key is computed, so rows can't be compared.
        """
        self._context = context
        self._rounds = rounds or Rounds(context.source.every_us)
        self._tables = IcebergTables(connector, context)
        self._is_native = context.source.cdc is Cdc.NATIVE
        self._keys = key_columns(context, "an Iceberg table") if self._is_native else ()
        self._types = {field.name: field.dtype for field in context.dataset.fields}
        self._done: int | None = None
        self._snapshot: int | None = None
        self._sequence = self._number = self._file = self._row = 0
        self._is_first = False
        # The table as it was at the beginning of the round, the snapshots of the commit that is read, and those of the
        # commits of this round that aren't begun.
        self._table: Table | None = None
        self._commit: Sequence[Snapshot] = ()
        self._pending: list[list[Snapshot]] | None = None
        self._reading: SnapshotRows[ReadFile] | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on; the first time, begin with the rows of the snapshot that is the newest now."""
        del items
        if not position:
            newest = self._load().metadata.current_snapshot()
            position = {
                "done": None,
                "sequence": 0,
                "snapshot": None if newest is None else newest.snapshot_id,
                "first": newest is not None,
                "number": 0,
                "file": 0,
                "row": 0,
                "next": 0.0,
                "reading": True,
            }
        self._done, self._snapshot = position["done"], position["snapshot"]
        self._is_first = bool(position["first"])
        self._number, self._file, self._row = (int(position[name]) for name in ("number", "file", "row"))
        self._sequence = int(position["sequence"])
        self._rounds.go_on(position)
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next rows; see `SourceReader.poll`."""
        begun = time.monotonic()
        if not self._rounds.is_on:
            if not self._rounds.wait(timeout_s):
                return None
            self._rounds.begin()
        if self._pending is None:
            self._begin()
        batch = self._read(rows, size)
        self._rounds.note(len(batch.rows), begun)
        return batch

    def is_ahead(self, mark: str) -> bool:
        """Return whether a row isn't read yet, by the numbers of its snapshot, its file and its own."""
        return place_of(mark) >= (self._number, self._file, self._row)

    def progress(self) -> Progress | None:
        """Return how many bytes of the data files of the current snapshot are read."""
        if not self._rounds.is_on or self._reading is None:
            return None
        sizes = [each.file.file_size_in_bytes for each in self._reading.files]
        current = min(self._reading.read_bytes, sizes[self._file]) if self._file < len(sizes) else 0
        return Progress(done=sum(sizes[: self._file]) + current, total=sum(sizes), unit="bytes")

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows of the newest snapshot, and check that its files can be read."""
        self.seek({}, {})
        self._begin()
        return self._read(rows, 1 << 40)

    def close(self) -> None:
        """Close the file that is open."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _load(self) -> Table:
        """Open the table as it is now, and check that it has the columns."""
        table = self._table = self._tables.load()
        names = [field.name for field in table.metadata.schema().fields]
        check_columns(self._context, names, self._tables.where)
        return table

    def _begin(self) -> None:
        """Find the commits that this round reads."""
        table = self._load()
        if self._is_first:
            # The commits behind the first snapshot are those of the next round.
            snapshot = table.metadata.snapshot_by_id(self._snapshot or 0)
            if snapshot is None:
                raise UnavailableError(
                    f"{self._tables.where}: the snapshot {self._snapshot} has expired before it was read; {BEGIN_ANEW}"
                )
            self._commit, self._pending = [snapshot], []
            return
        found = history(table, self._done, self._sequence, self._tables.where)
        begun = 0
        if self._snapshot is not None:
            ids = [snapshot.snapshot_id for snapshot in found]
            if self._snapshot not in ids:
                raise UnavailableError(
                    f"{self._tables.where} was rolled back while the snapshot {self._snapshot} was read; {BEGIN_ANEW}"
                )
            begun = ids.index(self._snapshot) + 1
        self._commit, self._pending = found[:begun], commits(table, found[begun:])

    def _read(self, rows: int, size: int) -> SourceBatch:
        parts: list[Part] = []
        left, read, passed = rows, 0, 0
        is_fence = False
        while left > 0 and read < size and passed < BATCH_SNAPSHOTS:
            if self._snapshot is None:
                if not self._next_commit():
                    self._rounds.end()
                    self._pending = None
                    break
                if len(self._commit) > 1:
                    # The log of metadata forgets by and by which snapshots are of one commit.
                    is_fence = True
                    break
            reading = self._reading = self._reading or self._opened()
            before = reading.read_bytes
            some = reading.next(self._file, self._row, left)
            read += max(0, reading.read_bytes - before)
            if some is not None:
                parts.append(self._part(reading, some))
                left -= len(some.numbers)
                self._row = int(some.numbers[-1]) + 1
            elif self._file + 1 < len(reading.files):
                self._file, self._row = self._file + 1, 0
            else:
                self.close()
                passed += 1
                self._done, self._snapshot, self._is_first = self._snapshot, None, False
                self._sequence = self._commit[-1].sequence_number or 0
                self._number, self._file, self._row = self._number + len(self._commit), 0, 0
        return replace(batch_of(parts, self._position(), read), is_fence=is_fence)

    def _next_commit(self) -> bool:
        """Go to the next commit of this round; return False if there is none."""
        if not self._pending:
            return False
        self._commit = self._pending.pop(0)
        self._snapshot = self._commit[-1].snapshot_id
        return True

    def _opened(self) -> SnapshotRows[ReadFile]:
        table, tables, context = self._table, self._tables, self._context
        assert table is not None  # noqa: S101 (the round has begun)
        snapshot = self._commit[-1]
        if self._is_first:
            files = live(tables, table, snapshot)
        else:
            files = changes(tables, table, self._commit, is_root=self._done is None)
        columns = needed(table, context.columns, tables.where)

        def opened(read: ReadFile, which: Columns) -> OpenFile:
            return OpenFile(tables, table, read, table.metadata.schema() if which is Columns.ALL else columns)

        return SnapshotRows(
            files,
            opened,
            names=[field.name for field in columns.fields],
            keys=self._keys,
            shows_gone=self._is_native,
            where=f"{tables.where}, snapshot {snapshot.snapshot_id}",
        )

    def _part(self, reading: SnapshotRows[ReadFile], rows: Rows) -> Part:
        read, snapshot = reading.files[self._file], self._commit[-1]
        op = ("d" if read.is_gone else "r" if self._is_first else "c") if self._is_native else None
        return Part(
            prefix=f"{self._number}-{self._file}",
            origin={"file": read.file.file_path, "snapshot": snapshot.snapshot_id},
            numbers=rows.numbers,
            table=table_of(rows, self._types, op, snapshot.timestamp_ms),
        )

    def _position(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "sequence": self._sequence,
            "snapshot": self._snapshot,
            "first": self._is_first,
            "number": self._number,
            "file": self._file,
            "row": self._row,
            **self._rounds.to_json(),
        }
