"""The reader of topics that writes their records into tables."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
import structlog
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from caraway.dataplane.archive.store.columns import CONTROL, Encoder, columns_of
from caraway.dataplane.archive.store.model import TableReport, TableSize, table_path
from caraway.dataplane.archive.store.tables import KEPT_HOURS, ArchiveTable, ReplacedError
from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.erased_keys import HidesRecord
from caraway.dataplane.topics.left_out import LeaveOut, log_left_out
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.reader import LOST_OFFSET, UNHURRIED, Message, Reading, TopicReader
from caraway.dataplane.topics.truncation import Continuation, Reached, continuations
from caraway.errors import UnavailableError
from caraway.graph.plan.model import TopicPlan

LOG = structlog.get_logger(__name__)

# Records are kept as messages until there are this many records or bytes. Then they are converted to Arrow columns,
# which take a fraction of the memory.
PIECE_RECORDS = 10_000
PIECE_BYTES = 2 << 20
# The most bytes that wait to be written, of one topic and of all topics together. A topic beyond the first limit is
# written at once; beyond the second limit, the topic with the most bytes is written.
TABLE_BYTES = 16 << 20
ALL_BYTES = 64 << 20
# Each write of a table makes a small file. After this number of writes the small files are merged into large ones.
SMALL_FILES = 64
VACUUM_SECONDS = 3600.0
RETRY_SECONDS = 2.0
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.5

READING = Reading(UNHURRIED, batch=PIECE_RECORDS)


class Columns(Protocol):
    """The columns of a table."""

    @property
    def arrow(self) -> pa.Schema:
        """The schema of the table."""
        ...

    @property
    def time(self) -> str:
        """The column of times."""
        ...

    @property
    def partition(self) -> str:
        """The column of partitions."""
        ...

    @property
    def offset(self) -> str:
        """The column of offsets."""
        ...

    @property
    def statistics(self) -> tuple[str, ...]:
        """The columns whose least and greatest values the table's log has."""
        ...


class MessageEncoder(Protocol):
    """Makes Arrow tables of the messages of a topic."""

    @property
    def columns(self) -> Columns:
        """The columns of these tables."""
        ...

    def table(self, messages: Sequence[Message], hides: HidesRecord | None = None) -> pa.Table:
        """Return the records of messages, without those whose Kafka key `hides` is true of."""
        ...


def encoder_of(plan: TopicPlan, leave_out: LeaveOut = log_left_out) -> MessageEncoder:
    """Return the encoder of a dataset's topic, which calls `leave_out` with records that can't be read."""
    return Encoder(plan.name, columns_of(plan.schema), partial(leave_out, plan.dataset, plan.name))


@dataclass(slots=True)
class _Followed:
    """A topic that is archived, with the records that aren't in its table yet."""

    plan: TopicPlan
    table: ArchiveTable
    encoder: MessageEncoder
    positions: dict[int, int]
    epochs: dict[int, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    records: int = 0
    message_bytes: int = 0
    pieces: list[pa.Table] = field(default_factory=list)
    # The time of the oldest message that isn't in the table yet.
    since: float | None = None
    # True if any message that waits for the next write has a row; the others are markers, arrivals and erasures.
    rows: bool = False
    appended: int = 0
    vacuumed_at: float = 0.0
    # The size of the table, as last reported.
    size: TableSize | None = None

    def take(self, messages: Sequence[Message], now: float, hides: HidesRecord | None) -> None:
        """Add messages; records that `hides` is true of will be left out."""
        self.since = now if self.since is None else self.since
        self.rows = self.rows or any(message[0] is None or message[0][:1] != CONTROL for message in messages)
        self.messages += messages
        self.records += sum([records_in(value) for _, value, _, _ in messages])
        self.message_bytes += sum([len(value or b"") + len(key or b"") for key, value, _, _ in messages])
        # The messages of a partition come in order, so the offset behind its last message stays in the dict.
        self.positions |= {partition: offset + 1 for _, _, partition, offset in messages}
        if self.records >= PIECE_RECORDS or self.message_bytes >= PIECE_BYTES:
            self.encode(hides)

    def encode(self, hides: HidesRecord | None) -> None:
        """Make Arrow columns of the messages."""
        if self.messages:
            self.pieces.append(self.encoder.table(self.messages, hides))
            self.messages, self.records, self.message_bytes = [], 0, 0

    @property
    def waiting_bytes(self) -> int:
        """The size of the records that aren't in the table yet."""
        return self.message_bytes + sum(int(piece.nbytes) for piece in self.pieces)


class Follower:
    """Archives the topics that it is given. Only one thread may use it."""

    def __init__(
        self,
        bootstrap_servers: str,
        objects_url: str,
        seconds: float,
        *,
        report: Callable[[TableReport], object] = lambda _: None,
        note_loss: Callable[[Continuation, str, str], object] = lambda *_: None,
        hides: Callable[[TopicPlan], HidesRecord | None] = lambda _: None,
        encoder: Callable[[TopicPlan], MessageEncoder] = encoder_of,
        replaced_hours: int = KEPT_HOURS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write tables into the object store.

        Args:
            bootstrap_servers: The broker, "host:port".
            objects_url: The setting `objects`.
            seconds: Seconds after which a record is in its table, if it came alone.
            report: Called after each write, and when all messages that wait are without rows, such as markers.
            note_loss: Called with where a topic goes on that lacks records which its table has, the address of the
                table, and a text for the operator. It is called before the table goes on from there, and once more
                after that.
            hides: Returns the check whether a record of a topic is erased, None if none is.
            encoder: Returns the encoder of a topic's messages.
            replaced_hours: Hours for which tables keep files that were replaced.
            clock: Returns the time in seconds.
        """
        self._encoder = encoder
        self._replaced_hours = replaced_hours
        self._bootstrap_servers = bootstrap_servers
        self._objects_url = objects_url
        self._seconds = seconds
        self._report = report
        self._note_loss = note_loss
        self._hides = hides
        self._clock = clock
        self._reader = TopicReader(bootstrap_servers, READING)
        self._admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
        self._wanted: dict[str, TopicPlan] = {}
        self._followed: dict[str, _Followed] = {}
        self._retry_at: dict[str, float] = {}

    def follow(self, topics: Mapping[str, TopicPlan]) -> None:
        """Archive these topics from now on, and write what waits of the others."""
        for name in [name for name in self._followed if name not in topics]:
            self._write(name)
            self._leave(name)
        self._wanted = dict(topics)
        self._retry_at = {name: at for name, at in self._retry_at.items() if name in topics}

    def step(self) -> None:
        """Read what there is, for some tenths of a second at most, and write what is due.

        Raises `UnavailableError` if the broker doesn't answer.
        """
        self._join()
        if not self._followed:
            return
        try:
            taken = self._reader.read(POLL_SECONDS)
        except KafkaException as error:
            raise UnavailableError(f"Kafka doesn't answer ({error})") from error
        for topic, problem in taken.errors:
            if problem.code() in LOST_OFFSET and topic in self._followed:
                self._begin_again(topic, problem.str())
            else:
                LOG.debug("an error while topics are archived", topic=topic, reason=problem.str())
        now = self._clock()
        for name, messages in taken.messages.items():
            followed = self._followed.get(name)
            if followed is None:
                continue
            try:
                followed.take(messages, now, self._hides(followed.plan))
            except UnavailableError as error:
                self._begin_again(name, str(error))
                continue
            followed.epochs |= self._reader.epochs(name)
            # Messages without rows are reported as archived at once. Heartbeats write a marker every few seconds, so if
            # markers waited for the next write, a topic whose rows are all in its table would seem to be behind for
            # ever.
            if not followed.rows and followed.size is not None:
                self._report(_report_of(followed, followed.size))
        for name, followed in list(self._followed.items()):
            if followed.since is not None and (
                now - followed.since >= self._seconds or followed.waiting_bytes >= TABLE_BYTES
            ):
                self._write(name)
        while sum(followed.waiting_bytes for followed in self._followed.values()) > ALL_BYTES:
            self._write(max(self._followed, key=lambda name: self._followed[name].waiting_bytes))

    def flush(self) -> None:
        """Write all that waits."""
        for name in list(self._followed):
            self._write(name)

    def erase(self, topic: str) -> bool:
        """Remove the rows of erased keys from the table of a topic; return whether none is left.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        followed = self._followed.get(topic)
        hides = None if followed is None else self._hides(followed.plan)
        if followed is None or hides is None:
            return False
        columns = columns_of(followed.plan.schema)
        return self.remove(topic, lambda table: table.remove(columns, hides))

    def remove(self, topic: str, remove: Callable[[ArchiveTable], int]) -> bool:
        """Call `remove` with the table of a topic, to remove rows of erased keys; return whether that was done.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        # Rows that have waited since before the erasure are written first, so that they are removed as well.
        if topic in self._followed:
            self._write(topic)
        followed = self._followed.get(topic)
        if followed is None:
            return False
        try:
            removed = remove(followed.table)
        except ReplacedError as error:
            LOG.warning("erased keys stay in a table for now", topic=topic, reason=str(error))
            return False
        LOG.info("removed rows of erased keys from a table", topic=topic, rows=removed)
        self._tell(followed)
        return True

    def vacuum(self, topic: str, hours: int) -> bool:
        """Remove files of a topic's table that were replaced `hours` ago; return whether that was possible.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        followed = self._followed.get(topic)
        if followed is None:
            return False
        files = followed.table.vacuum(hours=hours)
        LOG.info("removed replaced files of a table", topic=topic, files=files)
        return True

    def close(self) -> None:
        """Close the connection. Records that wait aren't written, and will be read again."""
        self._reader.close()

    def archived(self) -> dict[str, dict[int, int]]:
        """Return the offset of the next message to archive of each partition, by topic: what is before is in tables."""
        return {name: followed.table.positions(followed.positions) for name, followed in self._followed.items()}

    def _join(self) -> None:
        """Begin with wanted topics that exist by now."""
        now = self._clock()
        names = [n for n in self._wanted if n not in self._followed and self._retry_at.get(n, 0.0) <= now]
        if not names:
            return
        for name in names:
            self._retry_at[name] = now + RETRY_SECONDS
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
        opened: dict[str, _Followed] = {}
        for name in names:
            try:
                found = answers[name].result()
            except KafkaException as error:
                LOG.debug("a topic can't be archived yet", topic=name, reason=str(error))
                continue
            try:
                opened[name] = self._open(self._wanted[name], str(found.topic_id), [p.id for p in found.partitions])
            except UnavailableError as error:
                LOG.warning("the archive waits", topic=name, reason=str(error))
        # All topics are opened first, so that one call asks the brokers about all of them.
        reached = {name: Reached(each.positions, each.epochs) for name, each in opened.items()}
        for name, place in continuations(self._bootstrap_servers, reached).items():
            try:
                self._begin(opened[name], place)
            except (UnavailableError, ReplacedError) as error:
                LOG.warning("the archive waits", topic=name, reason=str(error))

    def _open(self, plan: TopicPlan, topic_id: str, partitions: Sequence[int]) -> _Followed:
        encoder = self._encoder(plan)
        table = ArchiveTable.opened(
            self._objects_url,
            table_path(plan.name, topic_id),
            encoder.columns.arrow,
            dataset=plan.dataset,
            statistics=encoder.columns.statistics,
        )
        positions, epochs = table.positions(partitions), table.epochs(partitions)
        return _Followed(plan, table, encoder, positions, epochs, vacuumed_at=self._clock())

    def _begin(self, followed: _Followed, place: Continuation) -> None:
        """Archive a topic from where its table ends, or from where the topic first differs from its table."""
        name = followed.plan.name
        if place.lost:
            self._go_back(followed, place)
        first = TopicEnds(self._bootstrap_servers).beginnings([name]).get(name, {})
        start = {p: max(at, first.get(p, 0)) for p, at in followed.positions.items()}
        if start != followed.positions:
            LOG.error(
                "a topic lacks records that weren't archived yet; they are missing in the archive",
                topic=name,
                archived_up_to=followed.positions,
                goes_on_at=start,
            )
            followed.positions = start
        self._reader.start(name, start)
        self._followed[name] = followed
        self._tell(followed)

    def _go_back(self, followed: _Followed, place: Continuation) -> None:
        """Remove the rows of records that the topic has lost, in whose places others come, and archive these instead.

        Each step may be done again, and the position goes back last, so that an interrupted one is.
        """
        table, columns = followed.table, followed.encoder.columns
        consequence = (
            f"The rows of these records are out of the table; version {table.version} of {table.url} has them for "
            f"{self._replaced_hours} more hours"
        )
        told = place.told("the archive", consequence)
        LOG.error(told)
        removed = table.go_back(columns.partition, columns.offset, place.lost)
        self._note_loss(place, table.url, told)
        # The epochs of the earlier positions are right for the new positions, too: each new position is the offset at
        # which that epoch has ended.
        table.append(columns.arrow.empty_table(), place.offsets, followed.epochs)
        # Since the first call, a watch of served features may have read the table up to its earlier position. So the
        # second call sets the position of the watch back once more.
        self._note_loss(place, table.url, told)
        followed.positions = dict(place.offsets)
        LOG.info("removed rows of lost records from a table", topic=place.topic, rows=removed)

    def _leave(self, name: str) -> None:
        if self._followed.pop(name, None) is not None:
            self._reader.stop(name)

    def _write(self, name: str) -> None:
        """Write what waits of a topic; if that fails, begin again behind the last write."""
        followed = self._followed[name]
        if followed.since is None:
            return
        try:
            followed.encode(self._hides(followed.plan))
        except UnavailableError as error:
            self._begin_again(name, str(error))
            return
        # The rows of a file are in the order of event time. So readers that want an interval of time can leave out
        # files, and parts of files, by the least and greatest times in their statistics.
        rows = pa.concat_tables(followed.pieces).sort_by(followed.encoder.columns.time)
        try:
            followed.table.append(rows, followed.positions, followed.epochs)
        except (UnavailableError, ReplacedError) as error:
            self._begin_again(name, str(error))
            return
        followed.pieces, followed.since, followed.rows = [], None, False
        followed.appended += 1
        self._tidy(name, followed)
        self._tell(followed)

    def _begin_again(self, name: str, reason: str) -> None:
        """Drop what waits of a topic, and read it again from behind the last write, after a pause."""
        LOG.warning("the archive begins again behind its last write", topic=name, reason=reason)
        self._leave(name)
        self._retry_at[name] = self._clock() + RETRY_SECONDS

    def _tidy(self, name: str, followed: _Followed) -> None:
        """Make large files of small ones, now and then."""
        now = self._clock()
        try:
            if followed.appended >= SMALL_FILES:
                followed.appended = 0
                LOG.info("compacted a table", topic=name, files=followed.table.compact())
            if now - followed.vacuumed_at >= VACUUM_SECONDS:
                followed.vacuumed_at = now
                followed.table.vacuum(hours=self._replaced_hours)
        except (UnavailableError, ReplacedError) as error:
            LOG.warning("a table stays in small files for now", topic=name, reason=str(error))

    def _tell(self, followed: _Followed) -> None:
        try:
            followed.size = followed.table.size()
        except UnavailableError:
            return
        self._report(_report_of(followed, followed.size))


def _report_of(followed: _Followed, size: TableSize) -> TableReport:
    plan, positions = followed.plan, dict(followed.positions)
    return TableReport(topic=plan.name, dataset=plan.dataset, url=followed.table.url, positions=positions, size=size)
