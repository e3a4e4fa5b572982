"""The worker of one source: it reads records, turns them into rows, and writes these durably, each exactly once.

Each record that it writes has the position of its source record in a header, as a mark (`caraway.ingest.marks`). A
checkpoint in Postgres has a position up to which all rows of the source are durable. After a crash, or when another
server takes over, the worker goes on from the last checkpoint: it reads the marks on the records written since then,
and leaves those rows out. So the topics show which rows were written, and a checkpoint only limits how much is
read back.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta

from caraway.cluster.leases import HeldLease
from caraway.erasure.keys import ErasedKeys
from caraway.errors import InvalidInputError, TooLargeError, UnavailableError
from caraway.ingest import metrics
from caraway.ingest.delivery import SLICE, Deliverer, Writer
from caraway.ingest.json_text import parse
from caraway.ingest.marks import Marks, Written
from caraway.ingest.sources.ports import Positions, Topics
from caraway.ingest.sources.positions import Checkpoint
from caraway.ingest.sources.reader import SourceReader, SourceRecord
from caraway.ingest.table import RowTable, json_type
from caraway.ingest.targets import Target
from caraway.topics.dead_letters import DEAD_LETTERS

HEADER = "caraway-source"
# The most rows and bytes of one poll: so many that the fixed costs of a write don't count, and so few that a process
# holds only some MB for each source.
POLL_ROWS, POLL_BYTES = 1_000, 4 * 1024 * 1024
# The seconds for which a record is awaited. Then the worker checks whether it must stop, and whether its lease must be
# renewed.
POLL_S = 0.5
# The seconds between two checkpoints. A worker reads its topics back from the last one after a crash. While its source
# has no rows, checkpoints still move on, so that rows of others on the same topics needn't be read back.
CHECKPOINT_S, IDLE_CHECKPOINT_S = 1.0, 30.0
# The lease lasts 30 s and is renewed before a write if it is 3 s old, so a write begins with 27 s left. The writer
# gives a record up after 10 s. So even if the process pauses for 15 s, no record arrives after another server has taken
# over.
LASTING = timedelta(seconds=30)
RENEWAL_S = 3.0
WRITE_S = 10.0
LOST = "another server reads it now"


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
            clock: Returns the time in seconds.
            sleep: Waits for some seconds.
        """
        self._name = name
        self._target = target
        self._connect = connect
        self._right = right
        self._positions = positions
        self._topics = topics
        self._writer = writer
        self._erased = erased
        self._is_late = is_late
        self._clock = clock
        self._sleep = sleep
        self._reader: SourceReader | None = None
        self._checkpoint = Checkpoint()
        self._saved_at = float("-inf")
        self._read: dict[str, int] = {}
        self._written: Written = frozenset()
        self.lag: int | None = None
        """How many records of the source aren't read yet; None if that isn't known."""
        self.read_at: float | None = None
        """When this server read the last record, in seconds since the epoch; None if it has read none."""
        self.waits = False
        """True while no records are read, because what is computed from them is too far behind."""
        self.dead_letters = 0
        """How many rows became dead letters since this server started to read."""

    @property
    def owned(self) -> bool:
        """True if this server has the right to read the source."""
        return self._right.token is not None

    @property
    def offsets(self) -> dict[str, int]:
        """The offset of the next record of each partition, as far as this server knows."""
        return dict(self._read)

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
        reader = self._reader or self._open()
        self.waits = self._is_late()
        if self.waits:
            # The lease is still kept and checkpoints are saved, so that this server goes on as soon as it may.
            self._sleep(POLL_S)
        elif records := reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=POLL_S):
            self._take(records)
        changed = self._read != self._checkpoint.read
        if self._clock() > self._saved_at + (CHECKPOINT_S if changed else IDLE_CHECKPOINT_S):
            self._save()
        self.lag = reader.lag()
        return True

    def stop(self) -> None:
        """Save the position and let other servers read.

        Raises:
            UnavailableError: Kafka or Postgres doesn't answer; others can read when the lease has expired.
        """
        if self._right.token is None:
            return
        try:
            if self._reader is not None:
                self._save()
        finally:
            self._close()
            self._right.release()

    def _open(self) -> SourceReader:
        """Connect to the source and go on where the last owner was."""
        checkpoint = self._positions.load(self._name)
        ends = self._topics.ends([self._target.topic, DEAD_LETTERS])
        if missing := {self._target.topic, DEAD_LETTERS} - ends.keys():
            raise UnavailableError(f"the topic {', '.join(missing)} isn't there yet")
        if checkpoint is None:
            checkpoint = Checkpoint(written=ends)
            self._store(checkpoint)
        starts = {
            topic: {p: checkpoint.written.get(topic, {}).get(p, 0) for p in partitions}
            for topic, partitions in ends.items()
        }
        self._written = self._topics.marks(starts, HEADER, self._name)
        self._checkpoint, self._read = checkpoint, dict(checkpoint.read)
        reader = self._connect()
        try:
            reader.seek(checkpoint.read)
        except BaseException:
            reader.close()
            raise
        self._reader = reader
        return reader

    def _take(self, records: Sequence[SourceRecord]) -> None:
        """Write the rows of records, and wait until they are durable."""
        rows: list[object] = []
        faults: dict[int, str] = {}
        of_rows: list[SourceRecord] = []
        for record in records:
            if record.value is not None:
                row, fault = _decoded(record.value)
                if fault:
                    faults[len(rows)] = fault
                rows.append(row)
                of_rows.append(record)
        deliverer = Deliverer(
            [self._target],
            RowTable(rows, faults),
            origin=lambda row: {
                "source": self._target.source,
                "partition": of_rows[row].partition,
                "offset": of_rows[row].offset,
            },
            erased=self._erased,
            marks=Marks(header=HEADER, key=self._name, mark=lambda row: _position(of_rows[row]), written=self._written),
        )
        self._write(deliverer, len(rows))
        for record in records:
            self._read[record.partition] = record.offset + 1
        self.read_at = time.time()
        metrics.count_bytes(self._target, sum(len(record.value or b"") for record in records))

    def _write(self, deliverer: Deliverer, total: int) -> None:
        pending: list[Future[None]] = []
        refused: set[int] = set()
        filtered = 0
        try:
            for start in range(0, total, SLICE):
                delivery = deliverer.deliver(self._target, start, min(start + SLICE, total), time.time_ns() // 1000)
                refused.update(error.row for error in delivery.errors)
                filtered += delivery.filtered
                # The rows above may have taken long in a user's function. If another server has claimed the lease
                # meanwhile, it reads the same rows, so this one must not write them.
                if not self._right.keep(succeeds=True):
                    raise UnavailableError(LOST)
                pending += [self._writer.write(topic, items) for topic, items in delivery.items.items() if items]
        finally:
            # After an error the worker opens its source again and reads from the topics which rows were written. A
            # write still in progress would be missed there, and its rows would be written twice.
            wait(pending)
        for write in pending:
            write.result()
        self.dead_letters += len(refused)
        metrics.count(self._target, accepted=total - len(refused) - filtered, refused=len(refused), filtered=filtered)

    def _save(self) -> None:
        """Save a checkpoint of what is durable now, which is all that was read."""
        self._written = frozenset(written for written in self._written if self._is_ahead(written[1]))
        ends = self._topics.ends([self._target.topic, DEAD_LETTERS])
        if self._written:
            # `_written` has marks of rows that were written before a crash and whose source records aren't read again
            # yet. Until they are, the checkpoint keeps its old ends, so that these marks are found also after another
            # crash.
            ends = self._checkpoint.written
        self._store(Checkpoint(read=dict(self._read), written=ends))
        if self._reader is not None:
            self._reader.acknowledge(self._read)

    def _store(self, checkpoint: Checkpoint) -> None:
        token = self._right.token
        if token is None or not self._positions.save(self._name, token, checkpoint):
            raise UnavailableError(LOST)
        self._checkpoint, self._saved_at = checkpoint, self._clock()

    def _is_ahead(self, mark: str) -> bool:
        partition, _, offset = mark.partition("/")
        return int(offset.partition(".")[0]) >= self._read.get(partition, 0)

    def _close(self) -> None:
        reader, self._reader, self.lag, self.waits = self._reader, None, None, False
        if reader is not None:
            reader.close()


def _position(record: SourceRecord) -> str:
    return f"{record.partition}/{record.offset}"


def _decoded(value: bytes) -> tuple[object, str]:
    """Return the row in a record, or its text and the reason why it isn't a row."""
    try:
        row = parse(value)
    except (InvalidInputError, TooLargeError) as error:
        return value.decode(errors="replace"), f"decode: the record {error}"
    return row, "" if isinstance(row, dict) else f"decode: the record is {json_type(row)}, an object is expected"
