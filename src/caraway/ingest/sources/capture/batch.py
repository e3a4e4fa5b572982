"""A batch of captured changes: envelopes as Debezium makes them, with their marks and origins."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from caraway.ingest.sources.capture.log import Begin, Change, Row
from caraway.ingest.sources.capture.position import LogPosition, transaction_mark
from caraway.ingest.sources.reader import SourceBatch
from caraway.ingest.table import InsertColumns, InsertTable, RowTable, Table

# The column, beside those of the table, that has the time of the commit. No row of a table has an earlier one than the
# rows before it in the log, so as event time it gives the order of the log, whatever columns the table has.
COMMITTED_AT = "__committed_at"
MILLISECOND_US = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The origin of rows that weren't read from the log, as Debezium says it.
_LOADED = {"snapshot": "true"}

# The operations that put a row of which no other version is known.
_INSERTS = frozenset({"c", "r"})

Envelope = dict[str, object]


# One is made for each row, and those that aren't frozen take half of the time.
@dataclass(slots=True)
class _Entry:
    """A change on its way into an envelope. `change` is that of the log; None for rows that aren't from there."""

    op: str
    before: Row | None
    after: Row | None
    source: Mapping[str, object]
    change: Change | None = None


class Batch:
    """Collects the rows of one poll."""

    def __init__(self, table: str, position: LogPosition, *, rows: int, size: int, has_times: bool) -> None:
        """Begin a batch.

        Args:
            table: The table, for people.
            position: The position, which the reader moves on.
            rows: The most rows.
            size: The bytes behind which no further row is added.
            has_times: True if rows have the column `COMMITTED_AT`.
        """
        self._table = table
        self._position = position
        self._rows = rows
        self._size = size
        self._has_times = has_times
        self._entries: list[_Entry] = []
        self._marks: list[str] = []
        self._read = 0
        self.incomplete: list[Change] = []
        """The changes whose rows lack values."""
        self.is_news = False
        """True if the position has moved so far that it is worth saving, also without rows."""
        self.is_fence = False
        """True if the position must be saved before more is read."""
        self._origin: Mapping[str, object] | None = None
        self._source: dict[str, object] = {}
        # The transaction of the last change, and the beginning of the marks of its changes.
        self._begin: Begin | None = None
        self._transaction = ""
        self._loaded: InsertColumns | None = None

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def is_full(self) -> bool:
        """True if no row may be added."""
        return len(self) >= self._rows or self._read >= self._size

    @property
    def rows_left(self) -> int:
        """How many rows may still be added."""
        return max(0, self._rows - len(self))

    @property
    def bytes_left(self) -> int:
        """How many bytes may still be added, up to the row that reaches them."""
        return max(0, self._size - self._read)

    def add(self, change: Change, begin: Begin, number: int, committed_us: int) -> None:
        """Add a change."""
        if begin is not self._begin:
            self._begin, self._transaction = begin, transaction_mark(begin.at)
        self._add(
            f"{self._transaction}{number:x}",
            change.op,
            change.before,
            change.after,
            committed_us=committed_us,
            origin=begin.origin,
        )
        self._entries[-1].change = change
        self._read += change.size
        if change.incomplete:
            self.incomplete.append(change)

    def add_loaded(self, row: Row, mark: str, committed_us: int, size: int) -> None:
        """Add a row of the table itself."""
        self._add(mark, "r", None, row, committed_us=committed_us, origin=_LOADED)
        self._read += size

    def load(self, columns: Mapping[str, list[Any]], marks: list[str], committed_us: int, size: int) -> None:
        """Add rows of the table itself, by column, to a batch that gets no others.

        Args:
            columns: The values of each column, by its name; they stay as they are.
            marks: The marks of the rows.
            committed_us: The time of the rows, in microseconds since the epoch.
            size: The bytes of all of them.
        """
        assert not self._marks  # noqa: S101 (a chunk begins a batch and ends it)
        self._marks, self._read = marks, size
        source = _source(_LOADED, committed_us)
        if self._has_times:
            columns = {**columns, COMMITTED_AT: [_time(committed_us)] * len(marks)}

        def envelope(number: int) -> Envelope:
            after = {name: values[number] for name, values in columns.items()}
            return _envelope(_Entry("r", None, after, source))

        self._loaded = InsertColumns(columns, len(marks), envelope)

    def delete(self, key: Row, mark: str, committed_us: int) -> None:
        """Add a delete of a row that a truncate, or a new load, removes."""
        self._add(mark, "d", key, None, committed_us=committed_us, origin={"snapshot": "false"})

    def made(self) -> SourceBatch:
        """Return the batch, when what its rows lacked was put in."""
        if self.incomplete:
            self._complete()
        marks, table = self._marks, self._table
        return SourceBatch(
            rows=self._table_of_rows() if self._loaded is None else self._loaded,
            mark=marks.__getitem__,
            origin=lambda row: {"table": table, "log": marks[row]},
            position=self._position.to_json(),
            size=self._read,
            is_fence=self.is_fence,
        )

    def _table_of_rows(self) -> Table:
        entries = self._entries
        rows = [entry.after for entry in entries if entry.after is not None and entry.op in _INSERTS]
        if len(rows) < len(entries):
            return RowTable([_envelope(entry) for entry in entries], {})
        return InsertTable(rows, lambda number: _envelope(entries[number]))

    def _complete(self) -> None:
        """Put the completed rows into their entries. A row that is gone has no after, and is left out."""
        kept: list[_Entry] = []
        marks: list[str] = []
        for entry, mark in zip(self._entries, self._marks, strict=True):
            change = entry.change
            if change is not None and change.incomplete:
                entry.after = self._timed(change.after, entry.source)
                if change.after is None:
                    if change.old_key is None or change.before is None:
                        continue
                    entry.op = "d"
            kept.append(entry)
            marks.append(mark)
        self._entries, self._marks = kept, marks

    def _add(
        self,
        mark: str,
        op: str,
        before: Row | None,
        after: Row | None,
        *,
        committed_us: int,
        origin: Mapping[str, object],
    ) -> None:
        # The rows of a transaction, and those of a chunk, share one object.
        if origin is not self._origin:
            self._origin = origin
            self._source = _source(origin, committed_us)
        self._entries.append(_Entry(op, before, self._timed(after, self._source), self._source))
        self._marks.append(mark)

    def _timed(self, row: Row | None, source: Mapping[str, object]) -> Row | None:
        """Return a row with the time of its commit, if the dataset asks for it."""
        if row is None or not self._has_times:
            return row
        committed_us = source["ts_us"]
        assert isinstance(committed_us, int)  # noqa: S101 (made above)
        return {**row, COMMITTED_AT: _time(committed_us)}


def _source(origin: Mapping[str, object], committed_us: int) -> dict[str, object]:
    """Return Debezium's `source` of a row."""
    return {**origin, "ts_ms": committed_us // MILLISECOND_US, "ts_us": committed_us}


def _time(committed_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=committed_us)


def _envelope(entry: _Entry) -> Envelope:
    return {"op": entry.op, "before": entry.before, "after": entry.after, "source": entry.source}
