"""A batch of captured changes: envelopes as Debezium makes them, with their marks and origins."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from caraway.dataplane.ingest.table import InsertColumns, InsertTable, RowTable, Table
from caraway.dataplane.sources.cdc.log import Begin, Change, Puts, Row, rows_of
from caraway.dataplane.sources.cdc.position import LogPosition, transaction_mark
from caraway.dataplane.sources.reader import SourceBatch

# The column with the time of the commit, which rows can have beside the columns of the table. No row has an earlier
# time than the rows before it in the log. So as event time, it gives the order of the log, whatever columns the table
# has.
COMMITTED_AT = "__committed_at"
MILLISECOND_US = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Debezium's `source` of rows that were read from the table and not from the log.
_LOADED = {"snapshot": "true"}

# The operations that add a row without an earlier version: "c" from the log, and "r" from the load of the table.
_INSERTS = frozenset({"c", "r"})

Envelope = dict[str, object]


# This class isn't frozen: one is made for each row, and a frozen one would take twice the time.
@dataclass(slots=True)
class _Entry:
    """A change on its way into an envelope. `change` is that of the log; None for rows that aren't from there."""

    op: str
    before: Row | None
    after: Row | None
    source: Mapping[str, object]
    change: Change | None = None

    def envelope(self) -> Envelope:
        """Return the envelope."""
        return {"op": self.op, "before": self.before, "after": self.after, "source": self.source}


@dataclass(frozen=True, slots=True)
class _Run:
    """Changes by column, which have one source. None of them shows an earlier row."""

    ops: Sequence[str]
    columns: Mapping[str, list[Any]]
    source: Mapping[str, object]

    def __len__(self) -> int:
        return len(self.ops)

    def envelope(self, number: int) -> Envelope:
        """Return the envelope of a change."""
        after = {name: values[number] for name, values in self.columns.items()}
        return {"op": self.ops[number], "before": None, "after": after, "source": self.source}

    def entries(self) -> list[_Entry]:
        """Return the changes one by one."""
        rows = rows_of(self.columns, len(self))
        return [_Entry(op, None, row, self.source) for op, row in zip(self.ops, rows, strict=True)]


class Batch:
    """Collects the rows of one poll."""

    def __init__(
        self, table: str, position: LogPosition, *, rows: int, size: int, has_times: bool, takes_updates: bool
    ) -> None:
        """Begin a batch.

        Args:
            table: The table, for people.
            position: The position, which the reader moves on.
            rows: The most rows.
            size: The bytes behind which no further row is added.
            has_times: True if rows have the column `COMMITTED_AT`.
            takes_updates: True if an update that shows no earlier row is the same as an insert.
        """
        self._table = table
        self._position = position
        self._rows = rows
        self._size = size
        self._has_times = has_times
        self._takes_updates = takes_updates
        # The changes in their order: first `_entries`, which are single changes, then `_runs`, which have changes by
        # column.
        self._runs: list[_Run] = []
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
        # The transaction of the change that was added last, and the prefix of the marks of its changes.
        self._begin: Begin | None = None
        self._transaction = ""

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
        self._add(
            f"{self._prefix(begin)}{number:x}",
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
        """Add rows of the table itself, by column.

        Args:
            columns: The values of each column, by its name; they stay as they are.
            marks: The marks of the rows.
            committed_us: The time of the rows, in microseconds since the epoch.
            size: The bytes of all of them.
        """
        self._add_run(["r"] * len(marks), columns, committed_us=committed_us, origin=_LOADED)
        self._marks += marks
        self._read += size

    def put(self, puts: Puts, begin: Begin, number: int, committed_us: int, *, done: int) -> None:
        """Add changes that the log has by column.

        Args:
            puts: The changes.
            begin: The beginning of their transaction.
            number: The number of the first one in it.
            committed_us: The time of the commit, in microseconds since the epoch.
            done: How many of the first ones are left out.
        """
        columns = {name: values[done:] for name, values in puts.columns.items()} if done else puts.columns
        self._add_run(puts.ops[done:], columns, committed_us=committed_us, origin=begin.origin)
        prefix = self._prefix(begin)
        self._marks += [f"{prefix}{each:x}" for each in range(number + done, number + len(puts))]
        self._read += puts.size

    def delete(self, key: Row, mark: str, committed_us: int) -> None:
        """Add a delete of a row that a truncate, or a new load, removes."""
        self._add(mark, "d", key, None, committed_us=committed_us, origin={"snapshot": "false"})

    def made(self) -> SourceBatch:
        """Return the batch, when what its rows lacked was put in."""
        if self.incomplete:
            self._complete()
        marks, table = self._marks, self._table
        return SourceBatch(
            rows=self._table_of_rows(),
            mark=marks.__getitem__,
            origin=lambda row: {"table": table, "log": marks[row]},
            position=self._position.to_json(),
            size=self._read,
            is_fence=self.is_fence,
        )

    def _table_of_rows(self) -> Table:
        runs = self._runs
        if runs and not self._entries and all(run.columns.keys() == runs[0].columns.keys() for run in runs):
            return _table_of_runs(runs)
        self._separate()
        entries = self._entries
        inserts = _INSERTS | {"u"} if self._takes_updates else _INSERTS
        rows = [e.after for e in entries if e.after is not None and e.before is None and e.op in inserts]
        if len(rows) < len(entries):
            return RowTable([entry.envelope() for entry in entries], {})
        return InsertTable(rows, lambda number: entries[number].envelope())

    def _separate(self) -> None:
        """Make all changes entries."""
        separated = [entry for run in self._runs for entry in run.entries()]
        # Single entries come before all runs: `_add` turns the runs into entries before it adds its own. So the entries
        # of the runs are appended.
        self._entries += separated
        self._runs.clear()

    def _complete(self) -> None:
        """Put the completed rows into their entries. A row that is gone has no after, and is left out."""
        self._separate()
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
        if self._runs:
            self._separate()
        source = self._source_of(origin, committed_us)
        self._entries.append(_Entry(op, before, self._timed(after, source), source))
        self._marks.append(mark)

    def _add_run(
        self,
        ops: Sequence[str],
        columns: Mapping[str, list[Any]],
        *,
        committed_us: int,
        origin: Mapping[str, object],
    ) -> None:
        if self._has_times:
            columns = {**columns, COMMITTED_AT: [_time(committed_us)] * len(ops)}
        self._runs.append(_Run(ops, columns, self._source_of(origin, committed_us)))

    def _prefix(self, begin: Begin) -> str:
        """Return the beginning of the marks of a transaction's changes."""
        if begin is not self._begin:
            self._begin, self._transaction = begin, transaction_mark(begin.at)
        return self._transaction

    def _source_of(self, origin: Mapping[str, object], committed_us: int) -> Mapping[str, object]:
        """Return Debezium's `source` of a row. The rows of a transaction, and those of a chunk, share one object."""
        if origin is not self._origin:
            self._origin = origin
            self._source = {**origin, "ts_ms": committed_us // MILLISECOND_US, "ts_us": committed_us}
        return self._source

    def _timed(self, row: Row | None, source: Mapping[str, object]) -> Row | None:
        """Return a row with the time of its commit, if the dataset asks for it."""
        if row is None or not self._has_times:
            return row
        committed_us = source["ts_us"]
        assert isinstance(committed_us, int)  # noqa: S101 (made above)
        return {**row, COMMITTED_AT: _time(committed_us)}


def _time(committed_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=committed_us)


def _table_of_runs(runs: Sequence[_Run]) -> InsertColumns:
    """Return the changes of runs with the same columns."""
    if len(runs) == 1:
        return InsertColumns(runs[0].columns, len(runs[0]), runs[0].envelope)
    columns = {name: [value for run in runs for value in run.columns[name]] for name in runs[0].columns}
    ends = list(accumulate(map(len, runs)))

    def envelope(number: int) -> Envelope:
        place = bisect_right(ends, number)
        return runs[place].envelope(number - ends[place] + len(runs[place]))

    return InsertColumns(columns, ends[-1], envelope)
