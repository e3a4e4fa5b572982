"""A batch of captured changes: envelopes as Debezium makes them, with their marks and origins."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from caraway.ingest.sources.capture.log import Begin, Change, Row
from caraway.ingest.sources.capture.position import LogPosition, change_mark
from caraway.ingest.sources.reader import SourceBatch
from caraway.ingest.table import RowTable

# The column, beside those of the table, that has the time of the commit. No row of a table has an earlier one than the
# rows before it in the log, so as event time it gives the order of the log, whatever columns the table has.
COMMITTED_AT = "__committed_at"
MILLISECOND_US = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The origin of rows that weren't read from the log, as Debezium says it.
_LOADED = {"snapshot": "true"}

Envelope = dict[str, object]


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
        self._envelopes: list[tuple[Envelope, Change | None]] = []
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

    def __len__(self) -> int:
        return len(self._envelopes)

    @property
    def room(self) -> int:
        """The number of rows that it still takes."""
        return max(self._rows - len(self._envelopes), 0)

    @property
    def is_full(self) -> bool:
        """True if no row may be added."""
        return len(self._envelopes) >= self._rows or self._read >= self._size

    def add(self, change: Change, begin: Begin, number: int, committed_us: int) -> None:
        """Add a change."""
        envelope = self._envelope(change.op, change.before, change.after, committed_us, begin.origin)
        self._envelopes.append((envelope, change))
        self._marks.append(change_mark(begin.at, number))
        self._read += change.size
        if change.incomplete:
            self.incomplete.append(change)

    def add_loaded(self, row: Row, mark: str, committed_us: int, size: int) -> None:
        """Add a row of the table itself."""
        self._envelopes.append((self._envelope("r", None, row, committed_us, _LOADED), None))
        self._marks.append(mark)
        self._read += size

    def delete(self, key: Row, mark: str, committed_us: int) -> None:
        """Add a delete of a row that a truncate, or a new load, removes."""
        self._envelopes.append((self._envelope("d", key, None, committed_us, {"snapshot": "false"}), None))
        self._marks.append(mark)

    def made(self) -> SourceBatch:
        """Return the batch, when what its rows lacked was put in."""
        if self.incomplete:
            self._complete()
        marks, table = self._marks, self._table
        return SourceBatch(
            rows=RowTable([envelope for envelope, _ in self._envelopes], {}),
            mark=marks.__getitem__,
            origin=lambda row: {"table": table, "log": marks[row]},
            position=self._position.to_json(),
            size=self._read,
            is_fence=self.is_fence,
        )

    def _complete(self) -> None:
        """Put the completed rows into their envelopes. A row that is gone has no after, and is left out."""
        kept: list[tuple[Envelope, Change | None]] = []
        marks: list[str] = []
        for (envelope, change), mark in zip(self._envelopes, self._marks, strict=True):
            if change is not None and change.incomplete:
                envelope["after"] = self._timed(change.after, envelope["source"])
                if change.after is None:
                    if change.old_key is None or change.before is None:
                        continue
                    envelope["op"] = "d"
            kept.append((envelope, change))
            marks.append(mark)
        self._envelopes, self._marks = kept, marks

    def _envelope(
        self, op: str, before: Row | None, after: Row | None, committed_us: int, origin: Mapping[str, object]
    ) -> Envelope:
        # The rows of a transaction, and those of a chunk, share one object.
        if origin is not self._origin:
            self._origin = origin
            self._source = {**origin, "ts_ms": committed_us // MILLISECOND_US, "ts_us": committed_us}
        return {"op": op, "before": before, "after": self._timed(after, self._source), "source": self._source}

    def _timed(self, row: Row | None, source: object) -> Row | None:
        """Return a row with the time of its commit, if the dataset asks for it."""
        if row is None or not self._has_times:
            return row
        assert isinstance(source, dict)  # noqa: S101 (made above)
        return {**row, COMMITTED_AT: _EPOCH + timedelta(microseconds=source["ts_us"])}
