"""Rows of aggregates for jobs that read them: an index sends the changes of its dataset to a topic.

After each batch the index contains the dirty groups with their intervals of time, and the max event time. The current
rows of these groups are compared with the rows that were emitted before. Differences are put into an outbox, in one
write with the entries that say what was emitted, and sent from there to the topic. After a crash at any moment the
records in the outbox are sent again, unchanged, and none is lost (docs/inside/rocksdb_index.md, Emission).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
from rocksdict import WriteBatch

from caraway.dataplane.index.records.closing_time import read_closing_time, stored_clock_time
from caraway.dataplane.index.storage.intervals import Interval, has_max_event_time, lookback_us
from caraway.dataplane.index.storage.keys import (
    CHANGE_POINTS,
    DIRTY,
    FIRST_TIME_US,
    LAST_TIME_US,
    OUTBOX,
    SENT,
    SIGN,
    after,
    emission_key,
    from_time,
    pack_u64,
    time_of,
    timed_key,
)
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.index.windows.change_points import pack_intervals, read_newest_input, unpack_intervals
from caraway.dataplane.index.windows.current import CurrentRows, Row, row_readers
from caraway.dataplane.topics.codec import PUT, RETRACT, RecordCodec
from caraway.graph.plan.model import IndexPlan, TopicPlan

# A function that sends records (key, value) to the topic of a name, and returns once the broker has acknowledged them.
Send = Callable[[str, Sequence[tuple[bytes, bytes]]], None]

# A write to the database ends once it has this many records. Computing a row takes some 50 us, so a write takes some
# 0.1 s.
MOST_RECORDS = 2000
REVISION_BYTES = 8
# The identity of an emitted row is its time, these bytes and its key. The bytes make it at least 12 bytes long even if
# the key is empty, as long as an identity that is made from an offset and a partition.
ID_FILLING = bytes(4)


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """The progress of an index's emission.

    `revision` is that of the records sent last. Rows of times up to `closed_low` have been emitted, rows of times after
    `closed_high` haven't. Rows of times in between may have been emitted or not: the two differ while the emission
    processes an advance of the max event time. Nothing is emitted before the index has reached the offsets `held` of
    its own topic.
    """

    revision: int
    closed_low: int
    closed_high: int
    held: dict[int, int] = {}


NOTHING_YET = Progress(0, FIRST_TIME_US, FIRST_TIME_US)
pack = msgspec.msgpack.Encoder().encode
_PROGRESS = msgspec.msgpack.Decoder(Progress).decode
_LETTER = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode
# Decodes the entry (`SENT`) of a row that was emitted for a time: Kafka's key, the row encoded as a record without
# identity, and the revision with which it was sent.
unpack_sent = msgspec.msgpack.Decoder(tuple[bytes, bytes, int]).decode


class _Change(NamedTuple):
    """A difference at a time: Kafka's key and the row as they were `sent`, and as the `row` is now; None for no row."""

    time_us: int
    sent: tuple[bytes, bytes] | None
    row: tuple[bytes, bytes] | None


class Emission:
    """The emission of one index.

    `is_held` tells whether the last run emitted nothing, because a new database hasn't reached the former end of its
    topic.
    """

    def __init__(self, plan: IndexPlan, topic: TopicPlan, store: IndexStore) -> None:
        self.is_held = False
        self._plan = plan
        self._asset = plan.asset
        self._topic = topic.name
        self._store = store
        self._codec = RecordCodec(topic.schema)
        self._rows: CurrentRows = row_readers(plan, topic, store.geometry)
        self._closes = has_max_event_time(plan)
        self._known_us = 0
        self._lookback_us = lookback_us(plan)

    def run(self, send: Send | None, offsets: Mapping[int, int]) -> int:
        """Send the records left in the outbox, then those of changes since the last call; return the number of these.

        `offsets` shows how far the index has read its topic, by partition. Without `send`, records stay in the outbox
        until the next call. They get the greatest ingestion time of the records applied so far, or the clock time if
        it is later, since jobs and offline queries must not know a row before its causes (docs/inside/records.md).

        Raises `UnavailableError` if the broker doesn't take the records; they are sent at the next call.
        """
        self._deliver(send)
        self._known_us = self._known()
        progress = self._progress()
        self.is_held = any(offsets.get(partition, 0) < offset for partition, offset in progress.held.items())
        if self.is_held:
            return 0
        progress = msgspec.structs.replace(progress, held={})
        sent = 0
        while (count := self._freshen(progress)) is not None:
            progress = self._progress()
            self._deliver(send)
            sent += count
        return sent + self._close(send, progress)

    def _progress(self) -> Progress:
        data = self._store.get(emission_key(self._asset))
        return NOTHING_YET if data is None else _PROGRESS(data)

    def _closed(self) -> int:
        """Return the time up to which windows are closed, so that their rows exist."""
        if not self._closes:
            return LAST_TIME_US
        closing_us = read_closing_time(self._store.iterator(), self._plan)
        return FIRST_TIME_US if closing_us is None else max(FIRST_TIME_US, closing_us - self._lookback_us)

    def _known(self) -> int:
        """Return the time from which the rows that are sent now are known."""
        clock_us = stored_clock_time(self._store, self._asset) if self._plan.by_clock else None
        return max(0, clock_us or 0, read_newest_input(self._store, self._asset))

    def _freshen(self, progress: Progress) -> int | None:
        """Emit the changes of some dirty groups; return the number of records, None if no group is dirty."""
        batch = self._store.batch()
        writer = _Writer(self, batch, progress)
        closed_us = self._closed()
        if self._closes:
            if progress.closed_low == progress.closed_high:
                # No row of a time after `closed_low` has been emitted yet. `_close` compares all of these rows when it
                # processes the advance of the max event time, so they aren't compared here.
                closed_us = min(closed_us, progress.closed_low)
            # The stored progress has both times, `low` and `high`, until `_close` has run. If the process is killed
            # before that, a row of a time between them may have been emitted or not. So the next `_close` compares all
            # of these rows, even if the max event time has changed by then.
            low, high = min(progress.closed_low, closed_us), max(progress.closed_high, closed_us)
            progress = msgspec.structs.replace(progress, closed_low=low, closed_high=high)
        entries = self._asset + DIRTY
        any_dirty = False
        for key, data in self._store.scan(entries, after(entries)):
            any_dirty = True
            left = self._freshen_group(self._asset + key[len(entries) :], unpack_intervals(data), closed_us, writer)
            if left:
                batch.put(key, pack_intervals(left))
                break
            batch.delete(key)
            if writer.full:
                break
        if not any_dirty:
            return None
        writer.finish(progress)
        return writer.count

    def _freshen_group(
        self, prefix: bytes, intervals: Sequence[Interval], closed_us: int, writer: "_Writer"
    ) -> list[Interval]:
        """Emit the changes of one group; return the rest of its intervals if the write is full."""
        for position, (first, last) in enumerate(intervals):
            for change in self._changes(prefix, (first, last), closed_us):
                if writer.full:
                    return [(change.time_us, last), *intervals[position + 1 :]]
                writer.add(prefix, change)
        return []

    def _close(self, send: Send | None, progress: Progress) -> int:
        """Emit the rows that an advance of the closing time has closed, or that its going back has opened again."""
        closed_us = self._closed()
        if not self._closes or progress.closed_low == progress.closed_high == closed_us:
            return 0
        low, high = min(progress.closed_low, closed_us), max(progress.closed_high, closed_us)
        progress = msgspec.structs.replace(progress, closed_low=low, closed_high=high)
        entries = self._asset + CHANGE_POINTS
        change_points = self._store.scan(from_time(entries, low + 1), from_time(entries, high + 1))
        sent, done = 0, False
        while not done:
            writer = _Writer(self, self._store.batch(), progress)
            done = True
            for key, _ in change_points:
                time_us, prefix = time_of(key, len(entries)), self._asset + key[len(entries) + 8 :]
                for change in self._changes(prefix, (time_us, time_us), closed_us):
                    writer.add(prefix, change)
                if writer.full:
                    done = False
                    break
            if done:
                progress = msgspec.structs.replace(progress, closed_low=closed_us, closed_high=closed_us)
            writer.finish(progress)
            progress = self._progress()
            self._deliver(send)
            sent += writer.count
        return sent

    def _changes(self, prefix: bytes, interval: Interval, closed_us: int) -> Iterator[_Change]:
        """Yield the differences between current and emitted rows, in order of time."""
        first, last = interval
        present = self._rows(self._store, prefix, (first, min(last, closed_us)))
        entries = prefix + SENT
        emitted = self._store.scan(from_time(entries, first), from_time(entries, last + 1))
        row, was = next(present, None), next(emitted, None)
        while row is not None or was is not None:
            was_us = None if was is None else time_of(was[0], len(entries))
            time_us = min(t for t in (None if row is None else row.time_us, was_us) if t is not None)
            sent = unpack_sent(was[1])[:2] if was is not None and was_us == time_us else None
            now = self._encoded(row) if row is not None and row.time_us == time_us else None
            if sent != now:
                yield _Change(time_us, sent, now)
            if now is not None:
                row = next(present, None)
            if sent is not None:
                was = next(emitted, None)

    def _encoded(self, row: Row) -> tuple[bytes, bytes]:
        """Return Kafka's key, and the row in stored form: a record without identity."""
        value = self._codec.encode_value(op=PUT, time_us=row.time_us, ingested_us=0, row=row.values)
        return self._codec.encode_key(row.key) or b"", value

    def record(self, op: int, time_us: int, letter: tuple[bytes, bytes], progress: Progress) -> tuple[bytes, bytes]:
        """Return the record that sends a row (put) or retracts it."""
        key, value = letter
        record = self._codec.decode_value(value)
        return key, self._codec.encode_value(
            op=op,
            time_us=time_us,
            ingested_us=self._known_us,
            record_id=row_id(time_us, key),
            rev=progress.revision.to_bytes(REVISION_BYTES),
            row=record.row,
        )

    def outbox_key(self, progress: Progress, number: int) -> bytes:
        """Return the key under which a record is stored until it has been sent."""
        return self._asset + OUTBOX + pack_u64(progress.revision) + pack_u64(number)

    def finish(self, batch: WriteBatch, progress: Progress) -> None:
        """Write a batch together with the emission's progress."""
        batch.put(emission_key(self._asset), pack(progress))
        self._store.write(batch)

    def _deliver(self, send: Send | None) -> None:
        """Send the records in the outbox, and empty it."""
        if send is None:
            return
        entries = self._asset + OUTBOX
        waiting = self._store.scan(entries, after(entries))
        emptied = False
        while letters := [_LETTER(data) for _, data in islice(waiting, MOST_RECORDS)]:
            if not emptied:
                # A loss of power after the sending must not undo the write that put these records into the outbox.
                # Otherwise other records would be sent with the same revision.
                self._store.sync()
            send(self._topic, letters)
            emptied = True
        if emptied:
            batch = self._store.batch()
            batch.delete_range(entries, after(entries))
            self._store.write(batch)


class _Writer:
    """A collector of the records of one write, which all have the same new revision."""

    def __init__(self, emission: Emission, batch: WriteBatch, progress: Progress) -> None:
        self._emission = emission
        self._batch = batch
        self._progress = msgspec.structs.replace(progress, revision=progress.revision + 1)
        self.count = 0

    @property
    def full(self) -> bool:
        """True if the write has reached its size."""
        return self.count >= MOST_RECORDS

    def add(self, prefix: bytes, change: _Change) -> None:
        """Add the records of a change, and the entry that says that they were emitted."""
        time_us, sent, row = change
        entry = timed_key(prefix + SENT, time_us, b"")
        if sent is not None and (row is None or row[0] != sent[0]):
            self._put(RETRACT, time_us, sent)
        if row is None:
            self._batch.delete(entry)
        else:
            self._put(PUT, time_us, row)
            self._batch.put(entry, pack((*row, self._progress.revision)))

    def finish(self, progress: Progress) -> None:
        """Write all that was added, with the progress."""
        revision = self._progress.revision if self.count else progress.revision
        self._emission.finish(self._batch, msgspec.structs.replace(progress, revision=revision))

    def _put(self, op: int, time_us: int, letter: tuple[bytes, bytes]) -> None:
        record = self._emission.record(op, time_us, letter, self._progress)
        self._batch.put(self._emission.outbox_key(self._progress, self.count), pack(record))
        self.count += 1


def row_id(time_us: int, key: bytes) -> bytes:
    """Return the identity of a row; among rows of one time the one with the greater key counts as later."""
    return pack_u64(time_us + SIGN) + ID_FILLING + key
