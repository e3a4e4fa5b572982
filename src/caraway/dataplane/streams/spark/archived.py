"""The archived messages of a job's topics as a source of a streaming query, for what the topics don't have any more.

The offsets of this source are written like those of Spark's Kafka source. So a job reads the archive on its own
checkpoint, and goes on from there with Kafka (decision 42).
"""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from caraway.dataplane.archive.store.messages import ArchivedMessages
from caraway.graph.plan.model import RecordSchema

# The columns of Spark's Kafka source that jobs read.
SCHEMA = "topic string, key binary, value binary, partition int, offset bigint"
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
# A task reads about this many records at most, since it holds all of them in memory at once.
TASK_RECORDS = 100_000
# The number of messages in an Arrow record batch that a task passes to Spark.
BATCH_MESSAGES = 10_000

# The next offset of each partition, by topic; Spark writes it into the checkpoint as JSON.
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic whose archived messages are read.

    Attributes:
        name: The name of the topic.
        schema: The schema of its records.
        path: The path of its table in the object store.
        partitions: The numbers of its partitions.
    """

    name: str
    schema: RecordSchema
    path: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The archive of the topics of a job.

    Attributes:
        topics: The topics.
        objects_url: The object store that has their tables (the setting `objects`).
    """

    topics: tuple[ArchivedTopic, ...]
    objects_url: str


def read_archived(session: SparkSession, archived: Archived, batch_records: int) -> DataFrame:
    """Return all archived messages of some topics as a stream, in the columns of Spark's Kafka source.

    Args:
        session: The Spark session.
        archived: The topics.
        batch_records: About how many records a micro-batch has.
    """
    session.dataSource.register(ArchiveSource)
    packed = b64encode(pickle.dumps(archived)).decode()
    return session.readStream.format(ArchiveSource.name()).options(archived=packed, records=str(batch_records)).load()


class ArchiveSource(DataSource):
    """The data source, as Spark knows it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "caraway-archive"

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "ArchiveReader":  # noqa: N802 - the name is Spark's
        """Return the reader of a query."""
        del schema
        archived: Archived = pickle.loads(b64decode(self.options["archived"]))  # noqa: S301 - only a job writes it
        return ArchiveReader(archived, int(self.options["records"]))


@dataclass(frozen=True)
class Span(InputPartition):
    """The messages that a task reads: those of a partition of a topic from the first offset up to the end."""

    topic: str
    partition: int
    first: int
    end: int


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process beside the driver, and reads them in tasks."""

    def __init__(self, archived: Archived, batch_records: int) -> None:
        """Read topics, `batch_records` in a batch."""
        self._topics = {topic.name: topic for topic in archived.topics}
        self._objects_url = archived.objects_url
        self._batch_records = batch_records
        self._opened: Mapping[str, ArchivedMessages] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Return the offsets of the first messages."""
        return {name: {str(p): 0 for p in topic.partitions} for name, topic in self._topics.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: all that is archived now."""
        self._opened = self._open()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the number of records of a batch."""
        return ReadMaxRows(self._batch_records)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the offsets up to which the next batch reads; the same as `start` at the end."""
        opened = self._messages()
        most = None if isinstance(limit, ReadAllAvailable) else self._batch_records // max(1, len(opened))
        reached = {name: dict(offsets) for name, offsets in start.items()}
        for name, messages in opened.items():
            positions = {int(partition): offset for partition, offset in start[name].items()}
            spans = messages.next_spans(positions, messages.records + 1 if most is None else most)
            reached[name] |= {str(partition): end for partition, (_, end) in spans.items()}
        return reached

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the parts of a batch, one for each task."""
        opened = self._messages()
        spans: list[InputPartition] = []
        for name, offsets in end.items():
            if name not in opened:
                continue
            step = max(1, int(TASK_RECORDS / opened[name].records_per_message))
            for partition, behind in offsets.items():
                begin = start[name][partition]
                spans += [
                    Span(name, int(partition), first, min(behind, first + step)) for first in range(begin, behind, step)
                ]
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        if not isinstance(partition, Span):
            raise TypeError(f"{partition!r} is no part of a batch of this source")
        topic = self._topics[partition.topic]
        opened = ArchivedMessages.opened(self._objects_url, topic.path, topic.schema, topic.partitions)
        if opened is None:
            return
        messages = iter(opened.read({partition.partition: (partition.first, partition.end)}))
        while batch := list(islice(messages, BATCH_MESSAGES)):
            keys, values, partitions, offsets = zip(*batch, strict=True)
            columns = [[topic.name] * len(batch), keys, values, partitions, offsets]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)

    def commit(self, end: Offsets) -> None:
        """Do nothing: the archive is never consumed."""

    def stop(self) -> None:
        """Do nothing: nothing is kept open."""

    def _messages(self) -> Mapping[str, ArchivedMessages]:
        if not self._opened:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Mapping[str, ArchivedMessages]:
        opened = {
            name: ArchivedMessages.opened(self._objects_url, topic.path, topic.schema, topic.partitions)
            for name, topic in self._topics.items()
        }
        return {name: messages for name, messages in opened.items() if messages is not None}
