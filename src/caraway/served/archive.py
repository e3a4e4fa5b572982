"""The archive of served features, which copies them from their topic to Parquet files in the object store.

The name of a file has the range of offsets that the file covers. So the names show how far the archive is, and a server
that takes a partition over reads on behind its last file. A consumer group divides the partitions among the servers
that write to one object store.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from caraway.errors import UnavailableError
from caraway.objects.folder import ObjectFolder
from caraway.recurring import Recurring
from caraway.served import metrics
from caraway.served.log import SERVED
from caraway.topics.connection import client_config, consumer_config, kafka_logger

LOG = structlog.get_logger(__name__)

FOLDER = "served-features"
# A file is written as soon as so many rows of a partition are gathered, or records of so many bytes, even if they have
# waited for less than the interval of the archive.
MAX_ROWS = 50_000
MAX_BYTES = 16 << 20
BATCH = 200
POLL_S = 0.5
RETRY_S = 2.0
ANSWER_S = 10.0

CONFIG: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 1000,
    "queued.max.messages.kbytes": 4096,
}

SCHEMA = pa.schema(
    [
        ("served_at", pa.timestamp("us", tz="UTC")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("branch", pa.string()),
        ("commit", pa.string()),
        ("workflow", pa.string()),
        ("query", pa.string()),
        ("row", pa.int64()),
        ("inputs", pa.string()),
        ("outputs", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
NAME = re.compile(r".*/(?P<partition>\d+)-(?P<first>\d{20})-(?P<end>\d{20})\.parquet")


def file_name(topic_id: str, day: str, partition: int, first: int, end: int) -> str:
    """Return the name of the file with the offsets from `first` up to, not including, `end`.

    A topic that was deleted and made again has another id, so its offsets aren't mixed up with the old ones.
    """
    return f"{FOLDER}/topic={topic_id}/date={day}/{partition}-{first:020d}-{end:020d}.parquet"


def positions(names: Sequence[str]) -> dict[int, int]:
    """Return the offset behind the last one that is archived, by partition."""
    ends: dict[int, int] = {}
    for name in names:
        if found := NAME.fullmatch(name):
            partition = int(found["partition"])
            ends[partition] = max(ends.get(partition, 0), int(found["end"]))
    return ends


def rows_of(data: bytes, partition: int, offset: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a record, in the order of `SCHEMA`.

    Raises `ValueError` if the bytes aren't a record of `caraway.served.log`.
    """
    record = orjson.loads(data)
    try:
        inputs, outputs, at = record["inputs"], record["outputs"], record["at_us"]
        head = record["branch"], record["commit"], record["workflow"], record["query"]
        for place, row in enumerate(record["rows"]):
            yield (
                record["served_us"],
                at if isinstance(at, int) else at[place],
                *head,
                row,
                orjson.dumps({name: column[place] for name, column in inputs.items()}).decode(),
                orjson.dumps({name: column[place] for name, column in outputs.items()}).decode(),
                partition,
                offset,
            )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"it is no record of served features: {error!r}") from error


@dataclass(slots=True)
class Gathered:
    """Rows of a partition that aren't in a file yet: from offset `first` up to, not including, `end`."""

    first: int
    end: int
    since: float
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    bytes: int = 0

    def is_due(self, now: float, seconds: float) -> bool:
        """Return whether the rows must be written now."""
        return len(self.rows) >= MAX_ROWS or self.bytes >= MAX_BYTES or now - self.since >= seconds


def parquet(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Return rows as a Parquet file."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Archive(Recurring):
    """Writes the rows of the topic, which must exist, into files; when it is stopped, also those that still wait."""

    def __init__(
        self,
        bootstrap_servers: str,
        objects: ObjectFolder,
        seconds: float,
        *,
        member: str,
        clock: Callable[[], float] = time.monotonic,
        hides: Callable[[tuple[Any, ...]], bool] = lambda _: False,
    ) -> None:
        """Prepare to write rows into files of `objects` when they have waited for `seconds`.

        `member` is a lasting name of this server in the consumer group. With it the server goes on at once after a
        restart; without a name it would get partitions only when its earlier session has expired. `hides` returns
        whether a row is of an erased key, and left out. `clock` returns the time in seconds.
        """
        # If `_follow` fails, it is called again after a pause. It then begins behind the last file, so rows that
        # weren't written yet are read again.
        super().__init__("archive", self._follow, RETRY_S, at_once=True)
        self._hides = hides
        self._bootstrap_servers = bootstrap_servers
        self._config = {
            **consumer_config(bootstrap_servers),
            **CONFIG,
            "group.id": f"caraway-archive-{_digest(objects.url)}",
            "group.instance.id": _digest(member),
        }
        self._objects = objects
        self._seconds = seconds
        self._clock = clock
        self._gathered: dict[int, Gathered] = {}
        self._topic_id = ""

    def _follow(self) -> None:
        """Read and write until something fails or the archive is stopped."""
        self._gathered = {}
        try:
            self._topic_id = self._find_topic()
            with closing(Consumer(self._config, logger=kafka_logger())) as consumer:
                consumer.subscribe([SERVED], on_assign=self._begin, on_revoke=self._give_up, on_lost=self._give_up)
                while not self.stopping.is_set():
                    for message in consumer.consume(BATCH, POLL_S):
                        if message.error() is None:
                            self._take(message.value() or b"", message.partition() or 0, message.offset() or 0)
                    self._write(consumer, lambda gathered: gathered.is_due(self._clock(), self._seconds))
                self._write(consumer, lambda _: True)
        except KafkaException as error:
            raise UnavailableError(f"Kafka doesn't answer ({error})") from error

    def _find_topic(self) -> str:
        admin = AdminClient(client_config(self._bootstrap_servers), logger=kafka_logger())
        (found,) = admin.describe_topics(TopicCollection([SERVED]), request_timeout=ANSWER_S).values()
        return str(found.result().topic_id)

    def _begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Start reading each partition behind its archived rows."""
        names = [stored.name for stored in self._objects.stored(f"{FOLDER}/topic={self._topic_id}")]
        archived = positions(names)
        self._gathered = {}
        consumer.assign(
            [TopicPartition(SERVED, p.partition, archived.get(p.partition, OFFSET_BEGINNING)) for p in partitions]
        )

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Forget the rows of lost partitions; their new owner reads them again."""
        del consumer, partitions
        self._gathered = {}

    def _take(self, data: bytes, partition: int, offset: int) -> None:
        gathered = self._gathered.get(partition)
        if gathered is None:
            gathered = self._gathered[partition] = Gathered(offset, offset, self._clock())
        try:
            gathered.rows += list(rows_of(data, partition, offset))
        except ValueError as error:
            LOG.warning("skipped a record of served features", partition=partition, offset=offset, reason=str(error))
        gathered.end = offset + 1
        gathered.bytes += len(data)

    def _write(self, consumer: Consumer, chosen: Callable[[Gathered], bool]) -> None:
        for partition, gathered in list(self._gathered.items()):
            if not chosen(gathered):
                continue
            # The broker accepts a commit of an offset only from the consumer that has the partition, so two servers
            # don't write the same rows. The committed offset isn't read: the names of the files show where to go on.
            consumer.commit(offsets=[TopicPartition(SERVED, partition, gathered.end)], asynchronous=False)
            kept = [row for row in gathered.rows if not self._hides(row)]
            if gathered.rows:
                day = datetime.fromtimestamp(gathered.rows[0][0] / 1e6, UTC).date().isoformat()
                name = file_name(self._topic_id, day, partition, gathered.first, gathered.end)
                self._objects.write(name, parquet(kept))
                metrics.ARCHIVED_ROWS.inc(len(kept))
            del self._gathered[partition]
