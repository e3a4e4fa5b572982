"""The reader of Iceberg tables: first the rows of the newest snapshot, then what each further one has changed.

Snapshots are read one after another, and their data files in a fixed order, so that a row has the same number each time
(the number of the snapshot among those that were read, that of the file, and the row's in the file). With cdc "append"
and "upsert", rows that were added are read; with "native" also those that were removed. Files that were only written
anew, as by compaction, make no rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from caraway.dataplane.sources.columns import check_columns
from caraway.dataplane.sources.iceberg.changes import ReadFile, changes, commits, history, live
from caraway.dataplane.sources.iceberg.rows import OpenFile, needed
from caraway.dataplane.sources.iceberg.tables import AnyIceberg, IcebergTables
from caraway.dataplane.sources.reader import Items, Position, SourceContext
from caraway.dataplane.sources.rounds import Rounds
from caraway.dataplane.sources.snapshots.reader import FIRST_PLACE, SnapshotReader
from caraway.dataplane.sources.snapshots.reading import Columns, SnapshotRows
from caraway.dataplane.sources.snapshots.rows import BEGIN_ANEW
from caraway.errors import UnavailableError


class IcebergReader(SnapshotReader[list[Snapshot], ReadFile]):
    """Reads an Iceberg table (`SourceReader`).

    The position has the last snapshot that was read in full (`done`) with its sequence number, the last one of the
    commit that is being read with a file of it and a row of the file, and how many snapshots were read (`number`).
    """

    most_steps = 100

    def __init__(self, connector: AnyIceberg, context: SourceContext, *, rounds: Rounds | None = None) -> None:
        """Prepare to read.

        Args:
            connector: The folder of the table, or the table of a catalog.
            context: All else that the reader knows.
            rounds: The rounds, if they aren't those of the machine's clock.

        Raises:
            UnavailableError: The key is computed, so rows can't be compared.
        """
        self._tables = IcebergTables(connector, context)
        super().__init__(context, "an Iceberg table", rounds)
        self._done: int | None = None
        self._snapshot: int | None = None
        self._sequence = 0
        self._first = False
        # The table as it was at the beginning of the round, and the snapshots of the commit that is read.
        self._table: Table | None = None
        self._commit: Sequence[Snapshot] = ()

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
                **FIRST_PLACE,
            }
        self._done, self._snapshot = position["done"], position["snapshot"]
        self._first = bool(position["first"])
        self._sequence = int(position["sequence"])
        self._go_on(position)
        return position

    def _load(self) -> Table:
        """Open the table as it is now, and check that it has the columns."""
        table = self._table = self._tables.load()
        names = [field.name for field in table.metadata.schema().fields]
        check_columns(self._context, names, self._tables.where)
        return table

    def _begin(self) -> None:
        """Find the commits that this round reads."""
        table = self._load()
        if self._first:
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

    @property
    def _is_within(self) -> bool:
        return self._snapshot is not None

    @property
    def _is_first(self) -> bool:
        return self._first

    def _enter(self, step: list[Snapshot]) -> bool:
        self._commit = step
        self._snapshot = step[-1].snapshot_id
        # If a commit has several snapshots, the position with its last one is saved before its rows are read. After a
        # crash, the table's log of metadata, which loses old entries, might not show any more which snapshots are of
        # one commit.
        return len(step) > 1

    def _leave(self) -> int:
        self._done, self._snapshot, self._first = self._snapshot, None, False
        self._sequence = self._commit[-1].sequence_number or 0
        return len(self._commit)

    def _opened(self) -> SnapshotRows[ReadFile]:
        table, tables, context = self._table, self._tables, self._context
        assert table is not None  # noqa: S101 (the round has begun)
        snapshot = self._commit[-1]
        if self._first:
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

    def _origin(self, read: ReadFile) -> tuple[Mapping[str, object], int]:
        snapshot = self._commit[-1]
        return {"file": read.file.file_path, "snapshot": snapshot.snapshot_id}, snapshot.timestamp_ms

    def _position(self) -> dict[str, Any]:
        return {
            "done": self._done,
            "sequence": self._sequence,
            "snapshot": self._snapshot,
            "first": self._first,
            **self._place(),
        }
