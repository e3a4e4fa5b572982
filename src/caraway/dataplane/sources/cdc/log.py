"""The protocol of a database's log, which is all that differs between the databases whose changes are captured.

A log has *transactions*, each at a *coordinate*: a few integers that grow along the log, such as Postgres's LSN. The
reader (`caraway.dataplane.sources.cdc.reader`) makes rows, marks and positions of them, and loads the table first,
in chunks, by the method of "DBLog: A Watermark Based Change-Data-Capture Framework" (Andreakis, Papapanagiotou 2020):
the log is read from the beginning, and each chunk is put at the place in the log to which it belongs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class LostLogError(Exception):
    """The log is lost, and the table is to be loaded again; `state` is what the new load begins with."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__("the log is lost")
        self.state = state


Coordinate = tuple[int, ...]
Row = Mapping[str, Any]
# The values of a row's key as text, in the order of the key's columns.
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The log is kept by the database from `at` on. `state` is what the log must remember instead of what it had.

    `committed_us` is the time of the database then, in microseconds since the epoch.
    """

    at: Coordinate
    committed_us: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; `origin` is the part of Debezium's `source` that tells about it, without times."""

    at: Coordinate
    committed_us: int
    origin: Mapping[str, object]


@dataclass(slots=True)
class Change:
    """A change of one row.

    `before` has at least the columns of the table's key, or is None if the key is that of `after`. `key` is the row's
    key after the change, or before a delete, and `old_key` the one that it had if it has changed; both are None if the
    log doesn't compare them with those of chunks. `incomplete` is set if `after` lacks values. `size` is in bytes.
    """

    op: str
    before: Row | None
    after: Row | None
    key: Key | None
    old_key: Key | None
    size: int
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Puts:
    """Consecutive changes of one transaction, each of which inserts a row or replaces the row of the same key.

    They are kept by column, since a row is made into records by column, too.

    Attributes:
        ops: The operations: "c" for a row that is inserted, "u" for one that replaces another.
        columns: The values of each column, by its name.
        keys: The texts of each column of the key.
        size: The bytes of all of them.
    """

    ops: Sequence[str]
    columns: Mapping[str, list[Any]]
    keys: Sequence[list[str | None]]
    size: int

    def __len__(self) -> int:
        return len(self.ops)

    def changes(self) -> Iterator[Change]:
        """Yield the changes one by one."""
        size = self.size // len(self)
        for op, row, key in zip(self.ops, rows_of(self.columns, len(self)), zip(*self.keys, strict=True), strict=True):
            yield Change(op, None, row, key, None, size)


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of the table are removed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction has ended; the next one is at or behind `end`."""

    end: Coordinate


@dataclass(frozen=True, slots=True)
class Watermark:
    """The place in the log to which the last chunk belongs."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The log has nothing for the table before `end`, and nothing more at all for now if `is_end` is set."""

    end: Coordinate
    is_end: bool


Event = Started | Begin | Change | Puts | Truncate | Commit | Watermark | Quiet


@dataclass(slots=True)
class Chunk:
    """Rows of the table behind a key, in its order, as one moment had them.

    They are kept by column, since a row is made into records by column, too.

    Attributes:
        columns: The values of each column, by its name.
        keys: The texts of each column of the key.
        contents: The bytes from which the mark of each row is made.
        last: True if no row is behind these.
        size: Their bytes.
    """

    columns: dict[str, list[Any]] = field(default_factory=dict)
    keys: list[list[str | None]] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    last: bool = False
    size: int = 0

    def __len__(self) -> int:
        return len(self.contents)

    def add(
        self,
        columns: Mapping[str, list[Any]],
        keys: Sequence[list[str | None]],
        contents: list[bytes],
        most: int,
    ) -> None:
        """Add rows, as attributes have them, up to the one with which the chunk has at least `most` bytes."""
        count = rows_within(contents, most - self.size)
        for name, values in columns.items():
            self.columns.setdefault(name, []).extend(values[:count])
        if not self.keys:
            self.keys = [[] for _ in keys]
        for column, texts in zip(self.keys, keys, strict=True):
            column.extend(texts[:count])
        self.contents += contents[:count]
        self.size += sum(map(len, contents[:count]))

    def key(self, number: int) -> Key:
        """Return the key of a row."""
        return tuple(texts[number] for texts in self.keys)

    def rows(self) -> list[Row]:
        """Return all rows."""
        return rows_of(self.columns, len(self))


def rows_of(columns: Mapping[str, list[Any]], count: int) -> list[Row]:
    """Return so many rows that are given by column."""
    return [{name: values[number] for name, values in columns.items()} for number in range(count)]


def rows_within(contents: Sequence[bytes], size: int) -> int:
    """Return how many rows of these contents are taken so that they have at least `size` bytes, or all are taken."""
    total = 0
    for number, content in enumerate(contents):
        if total >= size:
            return number
        total += len(content)
    return len(contents)


class ChangeLog(Protocol):
    """The log of a database, read for one table. Each method raises `UnavailableError` with the remedy."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, which each delete has. It is known when the log is open."""
        ...

    @property
    def has_whole_rows(self) -> bool:
        """True if deletes have all columns."""
        ...

    @property
    def whole_rows_remedy(self) -> str:
        """The remedy by which deletes get all columns."""
        ...

    def first_state(self) -> Mapping[str, Any]:
        """Return what the log must remember before it changes anything in the database, such as invented names."""
        ...

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        """Connect, check all that reading needs, and go on at `at`.

        If that is None, `next` returns `Started` when the database keeps the log. `loading` tells whether the table
        itself isn't read in full yet.

        Raises:
            LostLogError: The log doesn't go back to `at`, and the user has agreed to a new load of the table.
        """
        ...

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        """Return the next event: at once if there is one, else after waiting; None if none came.

        `Puts` have at most so many rows, and none behind the row with which they have `size` bytes.
        """
        ...

    def state(self) -> Mapping[str, Any]:
        """Return what the log must remember at this place."""
        ...

    def chunk(self, after: Sequence[str | None] | None, *, rows: int, size: int) -> Chunk | None:
        """Return rows of the table behind a key; `next` then returns `Watermark` at their place in the log.

        Between the events that were returned so far and this place, all changes of these rows are returned. If a row
        was changed there, its content here may be older or newer. The chunk ends when it has `size` bytes. It is None
        if no chunk can be read now, because transactions that were returned can't be seen by others yet.
        """
        ...

    def loaded(self) -> None:
        """Note that the table is read in full, so that no chunk follows."""
        ...

    def complete(self, changes: Sequence[Change]) -> None:
        """Put the values into changes that the log leaves out, if they can still be read from the table.

        If the row is gone, a later event deletes it or changes its key, and the change has None as its `after`.
        """
        ...

    def confirm(self, at: Coordinate) -> None:
        """Allow the database to forget the log before `at`, if it keeps it for this reader."""
        ...

    def estimated_rows(self) -> int:
        """Return about how many rows the table has."""
        ...

    def sample(self, rows: int) -> list[Row]:
        """Return some rows of the table, and check all that reading needs, without changing anything."""
        ...

    def close(self) -> None:
        """End the connections. It may be called twice, and never raises."""
        ...
