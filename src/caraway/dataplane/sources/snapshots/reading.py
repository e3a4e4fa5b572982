"""The rows of one snapshot of a table, or those that it has changed, file by file."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from caraway.dataplane.sources.snapshots.differences import Changed, Differences
from caraway.dataplane.sources.snapshots.rows import Rows


class Columns(Enum):
    """The columns of a file that are read."""

    ALL = "all"
    NEEDED = "needed"


class SnapshotFile(Protocol):
    """A file, or a group of files that are read as one."""

    @property
    def is_gone(self) -> bool:
        """True if its rows are removed by the snapshot, and not added."""

    @property
    def size(self) -> int:
        """The bytes that it has."""


class OpenFile(Protocol):
    """A file that is being read."""

    @property
    def read_bytes(self) -> int:
        """How many bytes were read."""

    def rows(self, first: int) -> Iterator[Rows]:
        """Yield the rows from the number `first` on. Raises `UnavailableError` if the file can't be read."""

    def close(self) -> None:
        """Close the file."""


File = TypeVar("File", bound=SnapshotFile)


class SnapshotRows(Generic[File]):
    """Reads the files of a snapshot. It may begin anew at each row; rows that are read in order are decoded once.

    Attributes:
        files: The files that were removed, and then those that were added.
    """

    def __init__(
        self,
        files: Sequence[File],
        opened: Callable[[File, Columns], OpenFile],
        *,
        names: Sequence[str],
        keys: Sequence[str],
        shows_gone: bool,
        where: str,
    ) -> None:
        """Prepare to read.

        Args:
            files: The files that the snapshot has removed, and then those that it has added.
            opened: Opens a file. Its rows have all columns, or those in `names` and maybe others.
            names: The columns that are handed over.
            keys: The columns of the key; empty if there is none.
            shows_gone: True if rows that were removed are read; else only those that were added are.
            where: The table and the snapshot, for people.

        Raises:
            UnavailableError: A file can't be read.
        """
        self.files = files
        self._opened = opened
        self._names = names
        self._keys = keys
        self._shows_gone = shows_gone
        self._open: OpenFile | None = None
        # The rows of the file that is being read, and those of its rows that are decoded, but not handed over yet.
        self._rows: Iterator[Rows] | None = None
        self._left: Rows | None = None
        self._file = -1
        self._differences: Differences | None = None
        if len({each.is_gone for each in files}) == 2:
            self._differences = Differences(self._side(is_gone=True), self._side(is_gone=False), keys, where)
        # For the removed files (True) and the added ones: the function that finds changed rows, and the number of the
        # next file that it has to see.
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

    def _all(self, read: File) -> Iterator[Rows]:
        opened = self._opened(read, Columns.ALL)
        try:
            yield from opened.rows(0)
        finally:
            opened.close()

    def _of(self, file: int, row: int) -> Iterator[Rows]:
        """Yield the rows of a file from one on; if files were written anew, those that have changed."""
        read, differences = self.files[file], self._differences
        if differences is None or (differences.is_empty and not self._replaces(read)):
            self._open = self._opened(read, Columns.NEEDED)
            for rows in self._open.rows(row):
                yield self._handed(rows)
            return
        changed = self._changed(file)
        for rows in self._all(read):
            mask = changed(rows)
            if self._replaces(read):
                mask &= ~differences.replaced(rows)
            mask &= rows.numbers >= row
            some = rows.chosen(mask)
            if len(some.numbers):
                yield self._handed(some)
        self._seen[read.is_gone] = (changed, file + 1)

    def _handed(self, rows: Rows) -> Rows:
        return Rows(rows.numbers, rows.batch.select(list(self._names)))

    def _replaces(self, read: File) -> bool:
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
