"""The records of topics up to given offsets: from their tables, and what the tables lack from the topics themselves.

A table has the offset of the next message to archive, so the two parts meet without a gap and without an overlap.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from caraway.dataplane.archive.store.columns import Encoder, TableColumns, columns_of
from caraway.dataplane.archive.store.frames import control_types, frame_of, framed
from caraway.dataplane.archive.store.model import table_path
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.ids import topic_id
from caraway.dataplane.topics.polling import poll_some
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.reader import COMMON, Message, connected
from caraway.errors import UnavailableError
from caraway.expr.polars.values import polars_type
from caraway.graph.plan.model import TopicKind, TopicPlan

# A broker that sends nothing for this many seconds, although there are messages to read, counts as gone.
SILENT_SECONDS = 30.0
POLL_SECONDS = 0.5
# The number of messages that are converted to columns at a time.
PIECE_MESSAGES = 10_000
# The number of messages in each part of a topic that isn't archived, if the records are read part by part.
SPAN_MESSAGES = 100_000

# The offsets before which records are read, by topic and partition.
Cuts = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ArchivedRecords:
    """Records of a topic.

    Attributes:
        rows: The records in the columns that were asked for, as `caraway.expr.polars.values.polars_type` has them, and
            in those of positions, times, operations and revisions.
        columns: The names and types of all of the table's columns.
        begins: The offset of the oldest message that is still known, by partition; 0 if none was lost.
    """

    rows: pl.DataFrame
    columns: TableColumns
    begins: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a topic's records: those of some files of its table, or of a span of offsets of the topic itself.

    Attributes:
        files: The addresses of the files; none for a span.
        rows: The number of records; for a span it is an estimate.
        partition: The partition of a span.
        first: The first offset of a span, or the number of the files' first record that is read.
        end: The offset behind a span, or the number behind the last record that is read; 0: all of the files' records.
    """

    files: tuple[str, ...]
    rows: int
    partition: int = 0
    first: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class TopicParts:
    """The places of a topic's records, which don't change while the archive goes on.

    Attributes:
        parts: All parts; each record is in exactly one of them.
        options: The options with which the files are opened.
        archived: The offset of the next message to archive, by partition.
        ends: The offsets before which records are read, by partition.
        begins: See `ArchivedRecords`.
        earliest_us: The least event time of the archived records in microseconds; None if there are none, or it isn't
            known.
    """

    parts: tuple[Part, ...]
    options: Mapping[str, str]
    archived: Mapping[int, int]
    ends: Mapping[int, int]
    begins: Mapping[int, int]
    earliest_us: int | None = None

    @property
    def rows(self) -> int:
        """The number of all records, as far as it is known."""
        return sum(part.rows for part in self.parts)

    def in_pieces(self, rows: int) -> list[Part]:
        """Return all parts in pieces of about so many records, so that each needs little memory."""
        return [piece for part in self.parts for piece in _pieces_of(part, rows)]


def cuts_now(bootstrap_servers: str, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the present ends of topics, so that whoever reads up to them sees the same records each time.

    Raises `UnavailableError` if the broker doesn't answer.
    """
    ends = TopicEnds(bootstrap_servers).ends(topics)
    return {topic: dict(offsets) for topic, offsets in ends.items()}


class ArchivedTopics:
    """The records of topics before some offsets. Not thread safe."""

    def __init__(self, bootstrap_servers: str, objects_url: str, cuts: Cuts) -> None:
        """Read from the broker "host:port" and from the tables below an object store (the setting `objects`).

        Args:
            bootstrap_servers: The broker.
            objects_url: The object store.
            cuts: The offsets before which records are read; a topic that isn't among them has no record.
        """
        self._bootstrap_servers = bootstrap_servers
        self._objects_url = objects_url
        self._cuts = cuts

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of a topic in some columns of its rows; the columns of their positions come besides.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        found = self.parts(topic)
        files = [file for part in found.parts for file in part.files]
        whole = [Part(tuple(files), 0)] if files else []
        spans = [part for part in found.parts if not part.files]
        pieces = [self.read(topic, found, part, wanted) for part in [*whole, *spans]]
        return ArchivedRecords(
            pl.concat([self.nothing(topic, wanted), *pieces]), columns_of(topic.schema), found.begins
        )

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        """Yield the records of a topic as `records` returns them, those of a file or of some messages at a time.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        found = self.parts(topic, SPAN_MESSAGES)
        for part in found.parts:
            yield ArchivedRecords(self.read(topic, found, part, wanted), columns_of(topic.schema), found.begins)

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records a topic has, about.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        return self.parts(topic).rows

    def nothing(self, topic: TopicPlan, wanted: Sequence[str]) -> pl.DataFrame:
        """Return no records of a topic, in the columns of `records`."""
        return pl.DataFrame(schema=_types(topic, columns_of(topic.schema), wanted))

    def parts(self, topic: TopicPlan, messages: int | None = None) -> TopicParts:
        """Return where the records of a topic are.

        Args:
            topic: The topic.
            messages: The most messages of a part that isn't archived.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        ends = self._cuts.get(topic.name, {})
        # The beginnings are asked for before the table is opened. In the other order, records that are archived and
        # removed from the topic in between would be in no part.
        known = TopicEnds(self._bootstrap_servers).beginnings([topic.name] if ends else [])
        oldest = known.get(topic.name, {})
        table = ArchiveTable.existing(
            self._objects_url, table_path(topic.name, topic_id(self._bootstrap_servers, topic.name))
        )
        archived = dict.fromkeys(ends, 0)
        parts: list[Part] = []
        earliest_us = None
        if table is not None:
            archived = table.positions(ends)
            parts = [Part((file,), rows) for file, rows in table.files()]
            earliest_us = table.least_instant(columns_of(topic.schema).time)
        begins = dict.fromkeys(ends, 0)
        left = {p: (archived[p], end) for p, end in ends.items() if archived[p] < end}
        if left:
            per_message = self._per_message(topic, sum(part.rows for part in parts), sum(archived.values()))
            begins = {p: oldest.get(p, 0) if oldest.get(p, 0) > archived[p] else 0 for p in ends}
            for partition, (archived_end, end) in left.items():
                first = max(archived_end, oldest.get(partition, 0))
                for begin in range(first, end, messages or max(end - first, 1)):
                    behind = min(end, begin + (messages or end))
                    parts.append(Part((), int((behind - begin) * per_message), partition, begin, behind))
        options = {} if table is None else table.options()
        return TopicParts(tuple(parts), options, archived, ends, begins, earliest_us)

    def _per_message(self, topic: TopicPlan, records: int, messages: int) -> float:
        """Return how many records a message has on average, given those that are archived; the last ones tell else."""
        # The topic needn't be sampled if some messages are archived, or if it has versions: these are never in blocks,
        # so each message has one record.
        if messages or topic.kind is TopicKind.VERSIONS:
            return max(records / max(messages, 1), 1.0)
        return records_per_message(self._bootstrap_servers, [topic.name])[topic.name]

    def read(self, topic: TopicPlan, found: TopicParts, part: Part, wanted: Sequence[str]) -> pl.DataFrame:
        """Return the records of a part in some columns of the topic's rows; see `records`."""
        columns = columns_of(topic.schema)
        types = _types(topic, columns, wanted)
        if part.files:
            kept = _before(columns, found.archived, found.ends)
            some = part.first, (part.end - part.first) if part.end else None
            return frame_of(part.files, found.options, list(types), kept, some).cast(pl.Schema(types))
        spans = {part.partition: (part.first, part.end)}
        pieces = [framed(piece, types) for piece in self._unarchived(topic, columns, spans)]
        return pl.concat([pl.DataFrame(schema=types), *pieces])

    def _unarchived(
        self, topic: TopicPlan, columns: TableColumns, spans: Mapping[int, tuple[int, int]]
    ) -> list[pa.Table]:
        """Return the records of a topic from the first up to, not including, the second offset of each partition."""
        encoder = Encoder(topic.name, columns)
        pieces: list[pa.Table] = []
        waiting: list[Message] = []
        for message in _messages(self._bootstrap_servers, topic.name, spans):
            waiting.append(message)
            if len(waiting) >= PIECE_MESSAGES:
                pieces.append(encoder.table(waiting))
                waiting = []
        return [*pieces, encoder.table(waiting)] if waiting else pieces


def _pieces_of(part: Part, rows: int) -> Iterator[Part]:
    count = max(-(-part.rows // rows), 1)
    # The records of a file are counted by their numbers, and those of a span by the offsets of its messages.
    first, end = (0, part.rows) if part.files else (part.first, part.end)
    bounds = [first + (end - first) * number // count for number in range(count + 1)]
    for begin, behind in pairwise(bounds):
        if begin < behind:
            yield replace(part, rows=part.rows // count, first=begin, end=behind)


def _types(topic: TopicPlan, columns: TableColumns, wanted: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types of the wanted columns of a topic's rows, and of those of their positions."""
    types = {column.name: polars_type(column.dtype) for column in topic.schema.columns if column.name in wanted}
    return types | control_types(columns)


def _before(columns: TableColumns, archived: Mapping[int, int], ends: Mapping[int, int]) -> pl.Expr | None:
    """Return the filter that leaves out records of a table that are behind the ends; None if there are none."""
    if all(archived[p] <= end for p, end in ends.items()):
        return None
    return pl.any_horizontal(
        (pl.col(columns.partition) == partition) & (pl.col(columns.offset) < end) for partition, end in ends.items()
    )


def _messages(bootstrap_servers: str, topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterable[Message]:
    """Yield the messages of a topic in spans of offsets, by partition."""
    open_ = {partition: end for partition, (first, end) in spans.items() if first < end}
    if not open_:
        return
    consumer = connected(bootstrap_servers, COMMON | {"enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, spans[partition][0]) for partition in open_])
        heard = time.monotonic()
        while open_:
            for message in poll_some(consumer, 1000, POLL_SECONDS):
                heard = time.monotonic()
                error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
                if error is not None:
                    # The last offsets of a partition may have no message, so the partition is also done when the broker
                    # reports its end.
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                        open_.pop(partition, None)
                        continue
                    raise UnavailableError(f"topic {topic} can't be read: {error.str()}")
                if partition not in open_:
                    continue
                if offset < open_[partition]:
                    yield message.key(), message.value(), partition, offset
                if offset + 1 >= open_[partition]:
                    del open_[partition]
            if time.monotonic() > heard + SILENT_SECONDS:
                raise UnavailableError(f"topic {topic} can't be read: the broker sent nothing for {SILENT_SECONDS:g} s")
    except KafkaException as error:
        raise UnavailableError(f"topic {topic} can't be read: {error}") from error
    finally:
        consumer.close()
