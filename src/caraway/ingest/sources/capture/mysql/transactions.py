"""Transactions of a binary log while they are read, and what is known about their end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from caraway.ingest.sources.capture.log import Change, Coordinate, Truncate
from caraway.ingest.sources.capture.mysql.chunks import key_of
from caraway.ingest.sources.capture.mysql.values import ReadColumn, row

# The bytes of a transaction that are kept until its end is read. A larger one is read twice: first to its end.
KEPT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an event, which aren't read yet."""

    kind: str
    data: bytes
    columns: Sequence[ReadColumn]
    key: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of the rows."""
        return len(self.data)

    def changes(self) -> Iterator[Change]:
        """Yield the changes."""
        data, columns, key, at = self.data, self.columns, self.key, 0
        while at < len(data):
            start = at
            found, at = row(data, at, columns)
            match self.kind:
                case "c":
                    yield Change("c", None, found, key_of(found, key), None, at - start)
                case "d":
                    yield Change("d", found, None, key_of(found, key), None, at - start)
                case _:
                    after, at = row(data, at, columns)
                    old, new = key_of(found, key), key_of(after, key)
                    yield Change("u", found, after, new, None if old == new else old, at - start)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A statement removed all rows."""

    size = 0

    def changes(self) -> Iterator[Truncate]:
        """Yield the event for the reader."""
        yield Truncate()


@dataclass(frozen=True, slots=True)
class Replaced:
    """A statement changed rows that the log doesn't have; `why` is the error."""

    why: str
    size = 0

    def changes(self) -> Iterator[Change]:
        """Yield nothing: the error is raised before."""
        return iter(())


Item = Rows | Emptied | Replaced


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the log whose changes were rolled back."""

    start: Coordinate
    end: Coordinate


@dataclass(frozen=True, slots=True)
class Known:
    """A transaction that was read to its end before, and is now read again to hand over its changes.

    Attributes:
        start: The place where it begins.
        at: The coordinate of its changes: that of its commit, if other transactions came in between (XA).
        end: The place behind its commit, where reading goes on.
        undone: The parts that were rolled back.
    """

    start: Coordinate
    at: Coordinate
    end: Coordinate
    undone: tuple[Span, ...]


@dataclass(slots=True)
class Transaction:
    """A transaction that is being read.

    Attributes:
        start: The place where it begins.
        at_us: Its time.
        origin: The part of Debezium's `source` that tells about it.
        gtid: Its GTID, as the server writes it.
        is_standalone: True if it is a single statement that has no commit of its own.
        items: Its changes of the table, and the place of each.
        size: The bytes of these.
        has_changes: True if it changes the table.
        is_large: True if its changes aren't kept.
        savepoints: The places of its savepoints.
        undone: The parts that were rolled back.
    """

    start: Coordinate
    at_us: int
    origin: dict[str, Any]
    gtid: str | None
    is_standalone: bool
    items: list[tuple[Coordinate, Item]] = field(default_factory=list)
    size: int = 0
    has_changes: bool = False
    is_large: bool = False
    savepoints: dict[str, Coordinate] = field(default_factory=dict)
    undone: list[Span] = field(default_factory=list)

    def add(self, place: Coordinate, item: Item) -> None:
        """Add changes, unless there are too many to keep."""
        self.has_changes = True
        self.size += item.size
        if self.size > KEPT_BYTES and isinstance(item, Rows):
            self.is_large = True
            self.items.clear()
        if not self.is_large:
            self.items.append((place, item))

    def roll_back(self, savepoint: str, end: Coordinate) -> None:
        """Note that what came since a savepoint was rolled back."""
        start = self.savepoints.get(savepoint, self.start)
        self.undone = [span for span in self.undone if span.start < start]
        self.undone.append(Span(start, end))


def is_undone(place: Coordinate, undone: Sequence[Span]) -> bool:
    """Return whether a place is in a part that was rolled back."""
    return any(span.start <= place < span.end for span in undone)


def kind_of(event: RowsEvent) -> str:
    """Return the `op` of an event's rows."""
    match event:
        case WriteRowsEvent():
            return "c"
        case UpdateRowsEvent():
            return "u"
        case DeleteRowsEvent():
            return "d"
    raise ValueError(f"an event of type {event.event_type} isn't known")
