"""The rows of one snapshot of an Iceberg table, or those that it has changed, file by file."""

from collections.abc import Iterator, Sequence

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from caraway.ingest.sources.iceberg.changes import ReadFile
from caraway.ingest.sources.iceberg.differences import Changed, Differences, keys_of
from caraway.ingest.sources.iceberg.rows import OpenFile, Rows, needed
from caraway.ingest.sources.iceberg.tables import IcebergTables


class SnapshotRows:
    """Reads the files of a snapshot. It may begin anew at each row; rows that are read in order are decoded once.

    Attributes:
        snapshot: The snapshot.
        files: The files that were removed, and then those that were added.
    """

    def __init__(
        self,
        tables: IcebergTables,
        table: Table,
        snapshot: Snapshot,
        files: Sequence[ReadFile],
        *,
        columns: frozenset[str] | None,
        keys: Sequence[str],
        shows_gone: bool,
    ) -> None:
        """Prepare to read.

        Args:
            tables: Opens files.
            table: The table.
            snapshot: The snapshot.
            files: The files that `caraway.ingest.sources.iceberg.changes` has found of it.
            columns: The columns that are needed; None: all.
            keys: The columns of the key; empty if there is none.
            shows_gone: True if rows that were removed are read; else only those that were added are.

        Raises:
            UnavailableError: A file can't be read.
        """
        self.snapshot, self.files = snapshot, files
        self._tables, self._table = tables, table
        self._keys = keys
        self._shows_gone = shows_gone
        self._columns = needed(table, columns, tables.where)
        self._open: OpenFile | None = None
        # The rows of the file that is being read, and those of them that were decoded and aren't handed over.
        self._rows: Iterator[Rows] | None = None
        self._left: Rows | None = None
        self._file = -1
        self._differences: Differences | None = None
        if len({each.is_gone for each in files}) == 2:
            self._differences = Differences(
                self._side(is_gone=True),
                self._side(is_gone=False),
                keys,
                f"{tables.where}, snapshot {snapshot.snapshot_id}",
            )
        # For each side, the function that tells its changed rows, and how many of the files it has seen.
        self._seen: dict[bool, tuple[Changed, int]] = {}

    @property
    def read_bytes(self) -> int:
        """How many bytes of the current file are read."""
        return 0 if self._open is None else self._open.read_bytes

    def close(self) -> None:
        """Close the file that is open."""
        self._rows = None
        if self._open is not None:
            self._open.close()

    def next(self, file: int, row: int, most: int) -> Rows | None:
        """Return rows of a file from a number on, at most so many; None if there are no more."""
        if file >= len(self.files) or (self.files[file].is_gone and not self._shows_gone):
            return None
        if self._file != file or self._rows is None:
            self.close()
            self._file, self._left = file, None
            self._rows = self._of(file, row)
        rows = self._left or next(self._rows, None)
        self._left = None
        if rows is not None and len(rows.numbers) > most:
            rows, self._left = rows.cut(0, most), rows.cut(most, len(rows.numbers))
        return rows

    def _side(self, *, is_gone: bool) -> Iterator[Rows]:
        """Yield all rows of the files that were removed, or of those that were added, with all columns."""
        for each in self.files:
            if each.is_gone == is_gone:
                yield from self._all(each)

    def _all(self, read: ReadFile) -> Iterator[Rows]:
        opened = OpenFile(self._tables, self._table, read, self._table.metadata.schema())
        try:
            yield from opened.rows(0)
        finally:
            opened.close()

    def _of(self, file: int, row: int) -> Iterator[Rows]:
        """Yield the rows of a file from one on; if files were written anew, those that have changed."""
        read, differences = self.files[file], self._differences
        if differences is None or (differences.is_empty and not self._replaces(read)):
            self._open = OpenFile(self._tables, self._table, read, self._columns)
            yield from self._open.rows(row)
            return
        names = [field.name for field in self._columns.fields]
        changed = self._changed(file)
        for rows in self._all(read):
            mask = changed(rows)
            if self._replaces(read):
                there = differences.keys
                mask &= np.fromiter((key not in there for key in keys_of(rows.batch, self._keys)), bool, len(mask))
            mask &= rows.numbers >= row
            some = rows.chosen(mask)
            if len(some.numbers):
                yield Rows(some.numbers, some.batch.select(names))
        self._seen[read.is_gone] = (changed, file + 1)

    def _replaces(self, read: ReadFile) -> bool:
        """Return whether rows that were removed from a file may be replaced by others of their keys."""
        return read.is_gone and bool(self._keys)

    def _changed(self, file: int) -> Changed:
        """Return what tells the changed rows of a file, after it has seen the files before it."""
        differences, is_gone = self._differences, self.files[file].is_gone
        assert differences is not None  # noqa: S101 (else nothing is compared)
        changed, seen = self._seen.pop(is_gone, (None, 0))
        if changed is None or seen != file:
            changed = differences.side()
            for each in self.files[:file]:
                if each.is_gone == is_gone:
                    for rows in self._all(each):
                        changed(rows)
        return changed
