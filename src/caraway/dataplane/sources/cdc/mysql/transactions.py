"""Transactions of a binary log while they are read, and what is known about their end."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymysqlreplication.row_event import RowsEvent, UpdateRowsEvent, WriteRowsEvent

from caraway.dataplane.sources.cdc.log import Change, Coordinate, Truncate
from caraway.dataplane.sources.cdc.mysql.chunks import key_of
from caraway.dataplane.sources.cdc.mysql.values import Reading

# At most this many bytes of a transaction are held in memory until its end is read. A larger transaction is read twice:
# first up to its end, then for its changes.
KEPT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an event, which aren't decoded yet; `key` are the columns of the table's key."""

    event: RowsEvent
    reading: Reading
    key: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of the event."""
        return int(self.event.event_size)

    def changes(self) -> Iterator[Change]:
        """Yield the changes."""
        reading, key, rows = self.reading, self.key, self.event.rows
        size = self.size // max(len(rows), 1)
        for found in rows:
            if isinstance(self.event, UpdateRowsEvent):
                before = reading.row(found["before_values"], found["before_none_sources"])
                after = reading.row(found["after_values"], found["after_none_sources"])
                old, new = key_of(before, key), key_of(after, key)
                yield Change("u", before, after, new, None if old == new else old, size)
                continue
            row = reading.row(found["values"], found["none_sources"])
            if isinstance(self.event, WriteRowsEvent):
                yield Change("c", None, row, key_of(row, key), None, size)
            else:
                yield Change("d", row, None, key_of(row, key), None, size)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A statement removed all rows."""

    size = 0

    def changes(self) -> Iterator[Truncate]:
        """Yield the event for the reader."""
        yield Truncate()


Item = Rows | Emptied


@dataclass(frozen=True, slots=True)
class Known:
    """A transaction that was read to its end before, and is now read again to hand over its changes.

    Attributes:
        start: The place where it begins, which is the coordinate of its changes.
        end: The place behind its commit.
        undone: The numbers of its items that were rolled back.
    """

    start: Coordinate
    end: Coordinate
    undone: Sequence[range]


@dataclass(slots=True)
class Transaction:
    """A transaction that is being read.

    Attributes:
        start: The place where it begins.
        at_us: Its time.
        origin: The part of Debezium's `source` that tells about it.
        gtid: Its GTID, as the server writes it.
        is_standalone: True if it is a single statement that has no commit of its own.
        items: Its changes of the table, and the number of each.
        count: How many items it has so far, also if they aren't kept.
        size: The bytes of these.
        is_large: True if its changes aren't kept.
        savepoints: How many items it had at each of its savepoints.
        undone: The numbers of the items that were rolled back.
    """

    start: Coordinate
    at_us: int
    origin: dict[str, Any]
    gtid: str | None
    is_standalone: bool
    items: deque[tuple[int, Item]] = field(default_factory=deque)
    count: int = 0
    size: int = 0
    is_large: bool = False
    savepoints: dict[str, int] = field(default_factory=dict)
    undone: list[range] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """Add changes, unless there are too many to keep."""
        self.size += item.size
        if self.size > KEPT_BYTES and isinstance(item, Rows):
            self.is_large = True
            self.items.clear()
        if not self.is_large:
            self.items.append((self.count, item))
        self.count += 1

    def roll_back(self, savepoint: str) -> None:
        """Note that what came since a savepoint was rolled back."""
        self.undone.append(range(self.savepoints.get(savepoint, 0), self.count))


def is_undone(number: int, undone: Sequence[range]) -> bool:
    """Return whether the item of a number was rolled back."""
    return any(number in span for span in undone)
