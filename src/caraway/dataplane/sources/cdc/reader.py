"""The reader of the changes of a table, for every database that has a log."""

import time
from collections.abc import Iterator, Sequence
from pkgutil import resolve_name
from secrets import randbits

from caraway.dataplane.sources.cdc.batch import COMMITTED_AT, Batch
from caraway.dataplane.sources.cdc.log import (
    Begin,
    Change,
    ChangeLog,
    Chunk,
    Commit,
    Coordinate,
    Event,
    Key,
    LostLogError,
    Puts,
    Quiet,
    Started,
    Truncate,
    Watermark,
    rows_within,
)
from caraway.dataplane.sources.cdc.position import LogPosition, Snapshot, change_mark, chunk_mark
from caraway.dataplane.sources.reader import Items, LiveRow, Position, Progress, SourceBatch, SourceContext
from caraway.dataplane.sources.row_digests import SEED_BITS, seeded_digests
from caraway.dtypes.types import STRING, base_type, strip_optional
from caraway.errors import UnavailableError
from caraway.graph.connectors import CaptureConnector
from caraway.graph.sources import Computed, Constant, Ref
from caraway.graph.systems import MySQLSystem, PostgresSystem

# A chunk has at most this many rows and bytes, so that it fits one batch, and the log waits less than a second while
# the chunk is read.
CHUNK_ROWS, CHUNK_BYTES = 8_000, 3 * 1024 * 1024
# If the log has only changes of other tables, the moved position is saved each time that this many seconds have passed,
# so that the database can remove its log.
QUIET_S = 10.0
_END = object()
# The classes that read a log, by the kind of system. They are named and not imported, so that reading one database
# doesn't need the library of another.
_LOGS = {
    MySQLSystem.kind: "caraway.dataplane.sources.cdc.mysql.log:MySQLLog",
    PostgresSystem.kind: "caraway.dataplane.sources.cdc.postgres.log:PostgresLog",
}
_FORGET_SLOT = "caraway.dataplane.sources.cdc.postgres.log:forget"
# The seconds between two tries to read a chunk, while snapshots don't show all transactions that were read from the
# log.
UNSEEN_S = 0.02


class CaptureReader:
    """Reads the changes of a table from the log of its database (`SourceReader`).

    First it makes the log last (`Started`). Then it loads the table in chunks, in the order of the key, and meanwhile
    hands over the changes in the log. A chunk is handed over at its place in the log, without the rows that were
    changed between the moment before it was read and this place: the log has them.
    """

    def __init__(self, connector: CaptureConnector, context: SourceContext) -> None:
        """Prepare to read."""
        self._context = context
        self._table = connector.table
        self._log = _log_of(connector, context)
        made = dict(context.source.preproc)
        self._has_times = any(isinstance(each, Ref) and each.path == (COMMITTED_AT,) for each in made.values())
        self._key_columns = {name: _column(name, made.get(name)) for name in context.dataset.keys}
        self._needs_before = context.source.where is not None or context.source.sample is not None
        # If nothing looks at the row before an update, an update in a dataset with keys is the same as an insert.
        self._takes_updates = bool(context.dataset.keys) and not self._needs_before
        self._position = LogPosition()
        # The chunk that waits for its place in the log, and the keys that changed since it was read.
        self._chunk: Chunk | None = None
        self._touched: set[Key] = set()
        self._is_emptied = False
        # The numbers of that chunk's rows that are still to be handed over; None before its place in the log is
        # reached.
        self._ready: Sequence[int] | None = None
        # The rows that a truncate, or a new load, still has to delete.
        self._deleting: Iterator[LiveRow | None] | None = None
        self._begin: Begin | None = None
        self._number = 0
        self._reported: Coordinate | None = None
        self._reported_at = 0.0
        self._idle_at: float | None = None
        self._tried_at = 0.0
        self._estimate = 0
        self._is_at_end = False
        self._is_open = False

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from a position; see `SourceReader.seek`."""
        del items
        if not position:
            # The log invents names, such as that of its slot. They are saved before the first poll creates anything in
            # the database, so that a source that restarts finds what it has created.
            self._position = LogPosition(state=self._log.first_state(), seed=randbits(SEED_BITS))
        else:
            self._position = LogPosition.of_json(position)
            self._open()
        return self._position.to_json()

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next changes; see `SourceReader.poll`."""
        if not self._is_open:
            self._open()
        position = self._position
        batch = self._batch(position, rows, size)
        if position.snapshot is not None and position.snapshot.clears and position.at is not None:
            self._deleting = self._deleting or iter(self._context.live_rows())
        if self._deleting is not None:
            self._delete(self._deleting, batch)
            return self._finished(batch)
        if self._ready is not None:
            self._put(self._ready, batch)
            return self._finished(batch)
        deadline = time.monotonic() + timeout_s
        while not batch.is_full:
            self._ask_for_chunk()
            wait_s = 0.0 if len(batch) else max(0.0, deadline - time.monotonic())
            wait_s = min(wait_s, UNSEEN_S) if self._awaits_chunk else wait_s
            event = self._log.next(wait_s, rows=batch.rows_left, size=batch.bytes_left)
            if event is not None and not self._take(event, batch):
                break
            if (event is None or isinstance(event, Quiet)) and (len(batch) or time.monotonic() >= deadline):
                break
        return self._finished(batch)

    def is_ahead(self, mark: str) -> bool:
        """Return whether a mark belongs to a row that may still be read."""
        return self._position.is_ahead(mark)

    def acknowledge(self, position: Position) -> None:
        """Allow the database to forget the log before a position."""
        if (at := position.get("at")) is not None:
            self._log.confirm(tuple(at))

    def lag(self) -> int | None:
        """Return how many rows are left to read, about.

        That is the estimate of the rows of the table while it is loaded, and 0 at the end of the log. Otherwise it
        isn't known, since the log has changes of other tables, too: None.
        """
        snapshot = self._position.snapshot
        if snapshot is not None:
            return max(self._estimate - snapshot.done, 1) if self._estimate else None
        return 0 if self._is_at_end else None

    def idle_at(self) -> float | None:
        """Return when the log last had nothing more."""
        return self._idle_at

    def progress(self) -> Progress | None:
        """Return how far the load of the table is."""
        snapshot = self._position.snapshot
        if snapshot is None:
            return None
        return Progress(done=snapshot.done, total=max(self._estimate, snapshot.done), unit="rows")

    def peek(self, rows: int) -> SourceBatch:
        """Return some rows of the table."""
        batch = self._batch(LogPosition(), rows, 1 << 62)
        now_us = time.time_ns() // 1_000
        for row in self._log.sample(rows):
            batch.add_loaded(row, "", now_us, 0)
        self._check_keys()
        return batch.made()

    def close(self) -> None:
        """End the connections."""
        self._log.close()

    def _batch(self, position: LogPosition, rows: int, size: int) -> Batch:
        return Batch(
            self._table,
            position,
            rows=rows,
            size=size,
            has_times=self._has_times,
            takes_updates=self._takes_updates,
        )

    def _open(self) -> None:
        position = self._position
        try:
            self._log.open(position.state, position.at, loading=position.snapshot is not None)
        except LostLogError as lost:
            self._log.close()
            snapshot = Snapshot(clears=True)
            self._position = position = LogPosition(
                state=lost.state,
                load=position.load + 1,
                committed_us=position.committed_us,
                snapshot=snapshot,
                seed=position.seed,
            )
            self._log.open(position.state, None, loading=True)
        self._check_keys()
        self._estimate = self._log.estimated_rows()
        self._is_open = True

    def _check_keys(self) -> None:
        """Raise `UnavailableError` if deletes come without the columns of the dataset's keys."""
        if self._log.has_whole_rows:
            return
        columns = [column for column in self._key_columns.values() if column is not None]
        if missing := [column for column in columns if column not in self._log.key]:
            raise UnavailableError(
                f"table {self._table}: deletes come with the columns {', '.join(self._log.key)} alone, and the keys "
                f"of the dataset need {', '.join(missing)}; {self._log.whole_rows_remedy}"
            )

    @property
    def _awaits_chunk(self) -> bool:
        """True if a chunk is to be read as soon as that is possible."""
        return self._position.snapshot is not None and self._chunk is None and self._position.at is not None

    def _ask_for_chunk(self) -> None:
        """Read the next chunk of the table, if it isn't read in full and no chunk waits."""
        position = self._position
        snapshot = position.snapshot
        if snapshot is None or self._chunk is not None or position.at is None:
            return
        if time.monotonic() < self._tried_at + UNSEEN_S:
            return
        self._touched, self._is_emptied = set(), False
        self._chunk = self._log.chunk(snapshot.after, rows=snapshot.rows, size=CHUNK_BYTES)
        self._tried_at = time.monotonic() if self._chunk is None else 0.0

    def _take(self, event: Event, batch: Batch) -> bool:
        """Take an event; return whether more may follow in the same batch."""
        position = self._position
        match event:
            case Change():
                self._take_change(event, batch)
            case Puts():
                self._take_puts(event, batch)
            case Begin():
                self._take_begin(event)
            case Commit(end):
                if position.at is None or end > position.at:
                    position.at = end
                position.transaction, position.index, self._begin = None, 0, None
            case Truncate():
                return self._take_truncate(batch)
            case Watermark():
                return self._take_watermark(batch)
            case Quiet(end, is_end):
                return self._take_quiet(end, is_end=is_end, batch=batch)
            case Started(at, committed_us, state):
                position.at, position.state = at, state
                position.committed_us = max(position.committed_us, committed_us)
                # The worker must save this place before rows are handed over. If a crash lost it, the log would be read
                # from a later place. Then deletes of these rows that are before that place would be missed.
                batch.is_news = batch.is_fence = True
                return False
        return True

    def _take_begin(self, begin: Begin) -> None:
        position = self._position
        self._is_at_end, self._idle_at = False, None
        if begin.at != position.transaction:
            position.transaction, position.index = begin.at, 0
        # The time of a commit never goes back, even if a clock does, so that the times of changes are in the order of
        # the log.
        position.committed_us = max(position.committed_us, begin.committed_us)
        self._begin = begin
        self._number = 0

    def _take_change(self, change: Change, batch: Batch) -> None:
        """Take a change, unless it was taken before the log was opened at the begin of its transaction."""
        begin, position = self._begin, self._position
        assert begin is not None  # noqa: S101 (a change is in a transaction)
        number, self._number = self._number, self._number + 1
        if self._chunk is not None:
            self._touched.update(key for key in (change.key, change.old_key) if key is not None)
        if position.is_done(begin.at, number):
            return
        position.index = number + 1
        batch.add(self._trimmed(change), begin, number, position.committed_us)

    def _take_puts(self, puts: Puts, batch: Batch) -> None:
        """Take the changes that the log has by column, without those that were taken before."""
        if "u" in puts.ops and not self._takes_updates:
            for change in puts.changes():
                self._take_change(change, batch)
            return
        begin, position = self._begin, self._position
        assert begin is not None  # noqa: S101 (a change is in a transaction)
        number, self._number = self._number, self._number + len(puts)
        if self._chunk is not None:
            self._touched.update(zip(*puts.keys, strict=True))
        done = position.count_done(begin.at, number, len(puts))
        if done < len(puts):
            position.index = self._number
            batch.put(puts, begin, number, position.committed_us, done=done)

    def _trimmed(self, change: Change) -> Change:
        """Return a change with the row before an update only if it says something.

        That takes the longest to convert, and usually nothing follows from it: the row after has the same key.
        """
        before, after = change.before, change.after
        if change.op != "u" or after is None:
            return change
        columns = [column for column in self._key_columns.values() if column is not None]
        if self._needs_before:
            # A row that passed `where` before the update may not pass it now. So the row before is kept, or at least
            # its key, by which the earlier row is deleted.
            change.before = before or {column: after[column] for column in self._log.key if column in after}
        elif before is not None and all(before.get(column) == after.get(column) for column in columns):
            change.before = None
        return change

    def _take_truncate(self, batch: Batch) -> bool:
        """Begin to delete all rows that the dataset has."""
        begin, position = self._begin, self._position
        assert begin is not None  # noqa: S101 (a truncate is in a transaction)
        number, self._number = self._number, self._number + 1
        self._is_emptied = True
        if position.is_done(begin.at, number):
            return True
        # `_delete` finds the dataset's rows in its records on the topic. By then, all rows before the truncate must be
        # on the topic, and none behind it. So this batch is a fence: the worker saves the position before it reads on,
        # and after a crash, reading begins again at the truncate.
        position.index = number
        self._deleting = iter(self._context.live_rows())
        batch.is_news = batch.is_fence = True
        return False

    def _delete(self, deleting: Iterator[LiveRow | None], batch: Batch) -> None:
        """Delete rows of the dataset, as many as the batch takes.

        After a crash, the dataset's records are read again; keys that were deleted don't count then.
        """
        position = self._position
        at: Coordinate = (0,) if position.transaction is None else position.transaction
        batch.is_news = True
        while not batch.is_full:
            live = next(deleting, _END)
            if live is None:
                # `live_rows` is still reading the records. The batch ends here, so that the worker can renew its lease.
                return
            if isinstance(live, LiveRow):
                key = {column: live.key[name] for name, column in self._key_columns.items() if column is not None}
                (digest,) = seeded_digests([repr(sorted(live.key.items())).encode()], position.seed)
                mark = change_mark(at, position.index, digest)
                # A delete isn't given an earlier time than the row that it deletes.
                batch.delete(key, mark, max(position.committed_us, live.at_us))
                continue
            self._deleting = None
            batch.is_fence = True
            if position.snapshot is not None and position.snapshot.clears:
                position.snapshot.clears = False
            else:
                position.index += 1
            return

    def _put(self, ready: Sequence[int], batch: Batch) -> None:
        """Put rows of the chunk whose place in the log is reached, as many as the batch takes."""
        position, snapshot, chunk = self._position, self._position.snapshot, self._chunk
        assert snapshot is not None  # noqa: S101 (a chunk is part of the load)
        assert chunk is not None  # noqa: S101 (it is ready)
        batch.is_news = True
        contents = [chunk.contents[number] for number in ready[: batch.rows_left]]
        count = rows_within(contents, batch.bytes_left)
        taken = ready[:count]
        columns = chunk.columns
        if count < len(chunk):
            columns = {name: [values[number] for number in taken] for name, values in columns.items()}
        prefix = chunk_mark(position.load, snapshot.chunk, "")
        contents = contents[:count]
        marks = [prefix + digest for digest in seeded_digests(contents, position.seed)]
        batch.load(columns, marks, position.committed_us, sum(map(len, contents)))
        if count < len(ready):
            self._ready = ready[count:]
            return
        snapshot.done += len(chunk)
        snapshot.chunk += 1
        if len(chunk):
            snapshot.after = chunk.key(-1)
            fits = CHUNK_BYTES * len(chunk) // max(chunk.size, 1)
            snapshot.rows = max(min(fits, CHUNK_ROWS, 4 * snapshot.rows), 1)
        self._chunk = self._ready = None
        if chunk.last:
            position.snapshot = None
            self._log.loaded()

    def _take_watermark(self, batch: Batch) -> bool:
        """Put the chunk that waits for this place of the log; return False, as the batch ends here."""
        chunk = self._chunk
        assert chunk is not None  # noqa: S101 (the log says so only of a chunk)
        if self._is_emptied:
            self._ready = ()
        elif self._touched:
            keys = zip(*chunk.keys, strict=True)
            self._ready = [number for number, key in enumerate(keys) if key not in self._touched]
        else:
            self._ready = range(len(chunk))
        if not len(batch):
            self._put(self._ready, batch)
        return False

    def _take_quiet(self, end: Coordinate, *, is_end: bool, batch: Batch) -> bool:
        position, now = self._position, time.monotonic()
        self._is_at_end = is_end and position.snapshot is None
        if self._is_at_end:
            self._idle_at = self._idle_at or now
        if position.at is None or end > position.at:
            position.at = end
        if position.at != self._reported and now > self._reported_at + QUIET_S:
            batch.is_news = True
        return not is_end or position.snapshot is not None

    def _finished(self, batch: Batch) -> SourceBatch | None:
        if not len(batch) and not batch.is_news:
            return None
        self._reported, self._reported_at = self._position.at, time.monotonic()
        if batch.incomplete:
            self._log.complete(batch.incomplete)
        self._position.state = self._log.state() if self._position.at is not None else self._position.state
        return batch.made()


def forget(connector: CaptureConnector, context: SourceContext, position: Position) -> None:
    """Remove what the log of a source has made in its database (`caraway.dataplane.sources.reader.Forget`)."""
    if position and isinstance(connector.system, PostgresSystem):
        state = LogPosition.of_json(position).state
        resolve_name(_FORGET_SLOT)(connector.system, state, context.resolve, context.endpoints)


def _column(field: str, made: Ref | Constant | Computed | None) -> str | None:
    """Return the column of the table from which a key of the dataset comes; None if it is a constant."""
    match made:
        case None:
            return field
        case Ref(path=path):
            return path[0]
        case _:
            return None


def _log_of(connector: CaptureConnector, context: SourceContext) -> ChangeLog:
    """Return the log of a system.

    Raises:
        UnavailableError: The library that reads it is missing.
    """
    if (name := _LOGS.get(connector.kind)) is None:
        raise UnavailableError(f"the log of {connector.kind} can't be read yet")
    log: ChangeLog = resolve_name(name)(connector.system, connector.table, context, _text_columns(context))
    return log


def _text_columns(context: SourceContext) -> frozenset[str]:
    """Return the columns that the dataset has as text, so that JSON in them isn't parsed."""
    made = dict(context.source.preproc)
    fields = [field.name for field in context.dataset.fields if base_type(strip_optional(field.dtype)) == STRING]
    return frozenset(column for name in fields if (column := _column(name, made.get(name))) is not None)
