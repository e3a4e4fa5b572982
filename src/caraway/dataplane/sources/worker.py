"""The worker of one source: it takes batches of rows from a reader, and writes them durably, each row exactly once.

Each record that it writes has the mark of its row in a header (`caraway.dataplane.ingest.marks`). A checkpoint in
Postgres has a position up to which all rows of the source are durable. After a crash, or when another server takes
over, the worker goes on from the last checkpoint: it reads the marks on the records written since then, and leaves
those rows out. So the topics show which rows were written, and a checkpoint only limits how much is read back.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace

from caraway.dataplane.ingest import metrics
from caraway.dataplane.ingest.delivery import SLICE, Deliverer, Writer
from caraway.dataplane.ingest.marks import Marks, Starts, Written
from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.pace import Pace
from caraway.dataplane.sources.ports import Positions, Topics
from caraway.dataplane.sources.positions import Checkpoint
from caraway.dataplane.sources.reader import DEFINITION, Position, Progress, SourceBatch, SourceReader, ahead_of
from caraway.dataplane.sources.removal import definition_of
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dtypes.durations import US_PER_SECOND
from caraway.errors import UnavailableError
from caraway.state.ownership.leases import HeldLease

HEADER = "caraway-source"
# A poll returns at most this many rows and bytes: enough that the fixed costs of a write don't matter, and few enough
# that a process holds only some MB for each source.
POLL_ROWS, POLL_BYTES = 10_000, 4 * 1024 * 1024
# The most batches that are on their way to Kafka while the next one is read and encoded. With one, the broker and this
# process would wait for each other.
IN_FLIGHT = 2
# Seconds for which a poll waits for a first row. After each poll the worker checks whether it must stop, and whether
# its lease must be renewed.
POLL_S = 0.5
# Seconds between two checkpoints, while the source has new rows and while it has none. After a crash, a worker reads
# its topics back from the last checkpoint. An idle source's checkpoint moves on, too, so that rows that others wrote to
# the same topics needn't be read back.
CHECKPOINT_S, IDLE_CHECKPOINT_S = 1.0, 30.0
# The seconds after which a record is given up; see `caraway.dataplane.confined.fleet.LASTING`.
WRITE_S = 10.0
# Seconds to wait after each look for the topics of a dataset. If it was defined just now, Kafka knows them within some
# tenths of a second. After the last look there is nothing to wait for.
LOOKS_S = (0.05, 0.1, 0.2, 0.4, 0.0)
LOST = "another server reads it now"


@dataclass(slots=True)
class _Sent:
    """A batch that is on its way to Kafka: the writes that must succeed, and what becomes of its rows."""

    batch: SourceBatch
    begun: float
    writes: list[Future[None]] = field(default_factory=list)
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def is_done(self) -> bool:
        """True if no write is going on any more."""
        return all(write.done() for write in self.writes)


class SourceWorker:
    """Reads one source for one dataset while it has the right to."""

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        connect: Callable[[], SourceReader],
        right: HeldLease,
        positions: Positions,
        topics: Topics,
        writer: Writer,
        erased: ErasedKeys,
        is_late: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare.

        Args:
            name: The name of the source, under which its position is kept.
            target: The dataset.
            connect: Opens the source.
            right: The right to read it. An earlier owner of the same name has ended, since only one process at a time
                can have this server's folder.
            positions: The store of checkpoints.
            topics: The topics that are written.
            writer: Writes records.
            erased: The erased keys.
            is_late: Returns whether what is computed from the rows is too far behind. Meanwhile no records are read.
            now: Returns the time in seconds since the epoch, which may jump.
            clock: Returns the time in seconds, which never jumps.
            sleep: Waits for some seconds.
        """
        self._name = name
        self.target = target
        self._connect = connect
        self._right = right
        self._positions = positions
        self._topics = topics
        self._writer = writer
        self._erased = erased
        self._is_late = is_late
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._reader: SourceReader | None = None
        self._checkpoint = Checkpoint()
        self._saved_at = float("-inf")
        self._sent: deque[_Sent] = deque()
        # The position up to which everything is durable now, and the changes of items since the checkpoint.
        self._position: Position = {}
        self._items: dict[str, bytes | None] = {}
        # When the last row came, or else when the source was opened, by `clock`.
        self._received = float("-inf")
        self._is_open = False
        self._written: Written = frozenset()
        self.lag: int | None = None
        """How many rows of the source aren't read yet; None if that isn't known."""
        self.progress: Progress | None = None
        """How far the current load is, if its size is known."""
        self.pace = Pace(clock)
        """The pace of the current load."""
        self.read_at: float | None = None
        """When this server read the last row, in seconds since the epoch; None if it has read none."""
        self.polled_at: float | None = None
        """When the source last answered, in seconds since the epoch; None if it hasn't answered this server."""
        self.rows = 0
        """How many rows this server has read and made durable since it started."""
        self.waits = False
        """True while no rows are read, because what is computed from them is too far behind."""
        self.dead_letters = 0
        """How many rows became dead letters since this server started to read."""

    @property
    def owned(self) -> bool:
        """True if this server has the right to read the source."""
        return self._right.token is not None

    @property
    def position(self) -> Position:
        """How far the source is read, as far as this server knows."""
        return self._position

    @property
    def closed(self) -> bool:
        """True if the source was bounded and has ended."""
        return self._checkpoint.closed

    def step(self) -> bool:
        """Read and write once; return False if another server has the right to read.

        Raises `CarawayError` if the source, Kafka or Postgres doesn't answer, or a secret is missing. The next call
        connects anew.
        """
        try:
            return self._step()
        except Exception:
            self._close()
            raise

    def _step(self) -> bool:
        if not self._right.keep(succeeds=True):
            self._close()
            return False
        if not self._is_open:
            self._open()
        reader = self._reader
        if reader is None or self._is_behind():
            # The source is closed, or its rows wait because what is computed from them is too far behind. The lease is
            # still renewed and checkpoints are saved, so that this server can go on at once, and little is read back
            # after a crash.
            self._sleep(POLL_S)
        else:
            self._poll(reader)
        changed = bool(self._items) or self._position != self._checkpoint.position
        if self._clock() > self._saved_at + (CHECKPOINT_S if changed else IDLE_CHECKPOINT_S):
            self._save()
        if reader is not None:
            self.lag, self.progress = reader.lag(), reader.progress()
            self.pace.note(self.progress)
        return True

    def _poll(self, reader: SourceReader) -> None:
        begun = self._clock()
        batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=POLL_S)
        self.polled_at = self._now()
        if batch is not None:
            self._send(batch, begun)
            if batch.is_fence:
                self._save()
            self._settle(IN_FLIGHT)
            return
        self._settle(0)
        if self._has_ended(reader):
            self._save(closed=True)
            self._disconnect()

    def _is_behind(self) -> bool:
        self.waits = self._is_late()
        return self.waits

    def _has_ended(self, reader: SourceReader) -> bool:
        """Return whether a bounded source has yielded nothing for its time of idleness, although it was asked."""
        source = self.target.plan.source
        asked = reader.idle_at()
        if not source.bounded or source.idleness_us is None or asked is None:
            return False
        # Idleness counts from the last row, or from the opening of the source, by a clock that doesn't jump with the
        # time of day.
        return asked - self._received >= source.idleness_us / US_PER_SECOND

    def stop(self) -> None:
        """Save the position and let other servers read.

        Raises:
            UnavailableError: Kafka or Postgres doesn't answer; others can read when the lease has expired.
        """
        if self._right.token is None:
            return
        try:
            if self._is_open:
                self._save()
        finally:
            self._close()
            self._right.release()

    def _open(self) -> None:
        """Connect to the source and go on where the last owner was."""
        checkpoint = self._positions.load(self._name)
        ends = self._ends()
        if checkpoint is None:
            checkpoint = Checkpoint(written=ends)
            self._store(checkpoint)
        starts = {
            topic: {p: checkpoint.written.get(topic, {}).get(p, 0) for p in partitions}
            for topic, partitions in ends.items()
        }
        self._written = self._topics.marks(starts, HEADER, self._name)
        self._checkpoint, self._position, self._items = checkpoint, checkpoint.position, {}
        if not checkpoint.closed:
            # A closed source isn't connected to: its system may have been switched off.
            self._reader = self._connected(checkpoint)
        self._received = self._clock()
        self._is_open = True

    def _ends(self) -> Starts:
        """Return where the topics end, if need be after a moment in which they come into being."""
        topics = [self.target.topic, DEAD_LETTERS]
        for pause_s in LOOKS_S:
            ends = self._topics.ends(topics)
            missing = [topic for topic in topics if topic not in ends]
            if not missing:
                return ends
            self._sleep(pause_s)
        raise UnavailableError(f"the topic {', '.join(missing)} isn't there yet")

    def _connected(self, checkpoint: Checkpoint) -> SourceReader:
        reader = self._connect()
        try:
            items = self._positions.items(self._name)
            saved = items.pop(DEFINITION, None)
            self._position = reader.seek(checkpoint.position, items)
            if self.target.plan.source.connector.forget:
                definition = definition_of(self.target.plan)
                self._items = {} if saved == definition else {DEFINITION: definition}
            if self._items or self._position != checkpoint.position:
                # The place at which the first read begins is saved before any row is read, so that a start after a
                # crash begins there, too.
                self._store(replace(checkpoint, position=self._position))
        except BaseException:
            reader.close()
            raise
        return reader

    def _send(self, batch: SourceBatch, begun: float) -> None:
        """Send the rows of a batch, of which `_settle` awaits that they are durable."""
        sent = _Sent(batch, begun)
        self._sent.append(sent)
        if batch.is_activity:
            self._received = self._clock()
        if not len(batch.rows):
            return
        deliverer = Deliverer(
            [self.target],
            batch.rows,
            origin=lambda row: {"source": self.target.source, **batch.origin(row)},
            erased=self._erased,
            marks=Marks(header=HEADER, key=self._name, mark=batch.mark, run=batch.run, written=self._written),
        )
        self.read_at, self._received = self._now(), self._clock()
        for start in range(0, len(batch.rows), SLICE):
            stop = min(start + SLICE, len(batch.rows))
            delivery = deliverer.deliver(self.target, start, stop, time.time_ns() // 1000)
            sent.counts.add(delivery.counts)
            # The rows above may have taken long in a user's function. If another server has claimed the lease
            # meanwhile, it reads the same rows, so this one must not write them.
            if not self._right.keep(succeeds=True):
                raise UnavailableError(LOST)
            sent.writes += [self._writer.write(topic, items) for topic, items in delivery.items.items() if items]

    def _settle(self, most: int) -> None:
        """Note which batches are durable; wait until at most so many are on their way."""
        while self._sent and (len(self._sent) > most or self._sent[0].is_done):
            sent = self._sent[0]
            for write in sent.writes:
                write.result()
            self._sent.popleft()
            self._position = sent.batch.position
            self._items.update(sent.batch.items)
            self._count(sent)

    def _count(self, sent: "_Sent") -> None:
        self.rows += sent.counts.read
        self.dead_letters += sent.counts.refused.total()
        metrics.count(self.target, sent.counts)
        metrics.count_bytes(self.target, sent.batch.size)
        if sent.counts.read:
            metrics.observe_poll(self.target, self._clock() - sent.begun)

    def _save(self, *, closed: bool = False) -> None:
        """Save a checkpoint of all that was read, when it is durable."""
        self._settle(0)
        reader = self._reader
        if reader is not None and self._written:
            ahead = ahead_of(reader, {w[1].partition(".")[0] for w in self._written})
            self._written = frozenset(w for w in self._written if w[1].partition(".")[0] in ahead)
        ends = self._topics.ends([self.target.topic, DEAD_LETTERS])
        if self._written:
            # `_written` has marks of rows that were written before a crash and that aren't read again yet. Until they
            # are, the checkpoint keeps its old ends, so that these marks are found also after another crash.
            ends = self._checkpoint.written
        closed = closed or self.closed
        self._store(replace(self._checkpoint, position=self._position, written=ends, closed=closed))
        if reader is not None:
            reader.acknowledge(self._position)

    def _store(self, checkpoint: Checkpoint) -> None:
        token = self._right.token
        if token is None or not self._positions.save(self._name, token, checkpoint, self._items):
            raise UnavailableError(LOST)
        self._checkpoint, self._items, self._saved_at = checkpoint, {}, self._clock()

    def _close(self) -> None:
        # After an error the worker opens its source again and reads from the topics which rows were written. A write
        # still in progress would be missed there, and its rows would be written twice.
        wait([write for sent in self._sent for write in sent.writes])
        self._sent.clear()
        self._disconnect()
        self._is_open = False

    def _disconnect(self) -> None:
        reader, self._reader, self.lag, self.progress, self.waits = self._reader, None, None, None, False
        if reader is not None:
            reader.close()
