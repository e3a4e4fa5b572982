"""Cases through the real thing: a broker, a Spark session with jobs, and the index worker."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

import orjson
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.index import IndexReader, IndexStore, IndexWorker
from caraway.plan import GraphPlan, IndexPlan, JobPlan, TopicPlan, plan_graph
from caraway.spark.jobs import start_job
from caraway.spark.session import SessionSettings, caraway_jar, open_session
from caraway.topics.admin import ensure_topics
from caraway.topics.codec import DELETE, PUT, RecordCodec
from caraway.topics.identity import position_id
from tests.integration.spark.broker import Broker, jars, running_broker
from tests.parity.graphs import Case
from tests.parity.traces import Arrival

CHECKPOINT_S = 5
SETTLE_S = 120.0
POLL_S = 0.1


@dataclass(frozen=True)
class Machinery:
    """What all runs share."""

    broker: Broker
    spark: SparkSession
    store: IndexStore
    worker: IndexWorker
    folder: Path


@contextmanager
def machinery(folder: Path) -> Iterator[Machinery]:
    """Start a broker, a session and an index worker, and end them afterwards."""
    settings = SessionSettings(
        master="local[512]", driver_memory="1g", jars=[*jars().connector, caraway_jar()], scratch=folder / "spark"
    )
    with running_broker(folder) as broker, IndexStore(folder / "index") as store:
        spark = open_session(settings)
        worker = IndexWorker(broker.bootstrap_servers, store)
        worker.start()
        try:
            yield Machinery(broker, spark, store, worker, folder)
        finally:
            worker.stop()
            spark.stop()


@dataclass(frozen=True)
class Part:
    """One case of a run, with its plan. `ids` has the identity of each arrival's record, by dataset."""

    case: Case
    plan: GraphPlan
    ids: dict[str, dict[int, bytes]]

    def topic(self, dataset: str) -> TopicPlan:
        return next(topic for topic in self.plan.topics if topic.dataset == dataset)

    def index(self, dataset: str) -> IndexPlan:
        return next(index for index in self.plan.indexes if index.dataset == dataset)

    def arrived(self) -> dict[str, list[Arrival]]:
        """Order what arrived by the identities of the records, which settle what came last."""
        return {
            dataset: sorted(arrived, key=lambda arrival: self.ids[dataset][arrival.number])
            for dataset, arrived in self.case.traces.items()
            if arrived
        }


class Run:
    """Some cases, running together. `label` tells the runs of one machinery apart."""

    def __init__(self, machinery: Machinery, cases: Sequence[Case], label: str) -> None:
        self.parts = [
            Part(case, _labelled(plan_graph(case.graph), f"{label}-{number}"), {}) for number, case in enumerate(cases)
        ]
        self.reader = IndexReader(machinery.store)
        self._machinery = machinery
        self._servers = machinery.broker.bootstrap_servers
        self._rng = Random(repr([case.seed for case in cases]))  # noqa: S311 (test data)
        self._jobs = [job for part in self.parts for job in part.plan.jobs]
        self._queries: dict[str, StreamingQuery] = {}

    def go(self, bursts: int = 4) -> None:
        """Make the topics, write what arrives in bursts, start the jobs after the first one, and wait for the end."""
        topics = [topic.name for part in self.parts for topic in part.plan.topics]
        one = {name for name in topics if self._rng.random() < 0.5}
        ensure_topics(self._servers, one, 1)
        ensure_topics(self._servers, set(topics) - one, 2)
        self._machinery.worker.set_plans([index for part in self.parts for index in part.plan.indexes])
        first, *others = _interleaved(self._rng, self.parts, bursts)
        self._send(first)
        for job in self._jobs:
            self._start(job)
        for lot in others:
            self._send(lot)
            time.sleep(self._rng.choice([0.0, 0.2, 0.5]))
        self.settle()

    def settle(self) -> None:
        """Wait until all jobs have read their inputs to the end, and the index has their outputs."""
        deadline = time.monotonic() + SETTLE_S
        while unread := self._unread():
            for job_id, query in self._queries.items():
                if query.exception() is not None:
                    raise RuntimeError(f"job {job_id} failed: {query.exception()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read to the end in time: {unread}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        for query in self._queries.values():
            query.stop()
        self._machinery.worker.set_plans([])

    def records(self, topic: TopicPlan) -> list[Message]:
        """Read a topic from its beginning to its end."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "parity", "enable.auto.commit": False})
        ends = self._ends(consumer, topic.name)
        consumer.assign([TopicPartition(topic.name, partition, 0) for partition in ends])
        messages: list[Message] = []
        while len(messages) < sum(ends.values()):
            messages += consumer.consume(10_000, 0.2)
        consumer.close()
        return messages

    def _start(self, job: JobPlan) -> None:
        self._queries[job.job_id] = start_job(
            self._machinery.spark,
            job,
            bootstrap_servers=self._servers,
            checkpoint=self._machinery.folder / "checkpoints" / job.job_id,
            checkpoint_interval_seconds=CHECKPOINT_S,
        )

    def _send(self, lot: Sequence[tuple[Part, str, Arrival]]) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0, "partitioner": "murmur2_random"})
        for part, dataset, arrival in lot:
            topic, ids = part.topic(dataset), part.ids.setdefault(dataset, {})
            # What is sent again must be known again: by an id of its own.
            named = part.case.repeats(dataset)
            if named:
                ids[arrival.number] = position_id(arrival.number, 0)
            codec = RecordCodec(topic.schema)
            producer.produce(
                topic.name,
                codec.encode_value(
                    op=DELETE if arrival.delete else PUT,
                    time_us=arrival.time_us,
                    ingested_us=arrival.number,
                    row=[arrival.row[column.name] for column in topic.schema.columns],
                    record_id=ids[arrival.number] if named else None,
                ),
                codec.encode_key([arrival.row[key.name] for key in topic.schema.keys]),
                on_delivery=None if named else _noting(ids, arrival.number),
            )
            producer.poll(0)
        assert producer.flush(30) == 0

    def _unread(self) -> list[str]:
        """Name the jobs and indexes that aren't at the end of their topics."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "parity", "enable.auto.commit": False})
        try:
            names = {topic.name for part in self.parts for topic in part.plan.topics}
            # First the reports, then the ends: what was written in between shows as unread.
            reached = {job_id: _reached(query) for job_id, query in self._queries.items()}
            positions = {status.asset: status.offsets for status in self._machinery.worker.positions()}
            ends = {name: self._ends(consumer, name) for name in names}
        finally:
            consumer.close()
        jobs = [j.job_id for j in self._jobs if any(reached[j.job_id].get(t.name) != ends[t.name] for t in j.inputs)]
        indexes = [
            index.dataset
            for part in self.parts
            for index in part.plan.indexes
            if positions.get(index.asset.hex()) != ends[index.topic]
        ]
        return jobs or indexes

    @staticmethod
    def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in partitions}


def _reached(query: StreamingQuery) -> dict[str, dict[int, int]]:
    """Return the offsets up to which a query has committed, by topic and partition."""
    progress = query.lastProgress
    if progress is None:
        return {}
    offsets: dict[str, dict[int, int]] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        for topic, parts in (orjson.loads(end) if isinstance(end, str) else end or {}).items():
            offsets[topic] = {int(partition): offset for partition, offset in parts.items()}
    return offsets


def _noting(ids: dict[int, bytes], number: int) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, partition = message.offset(), message.partition()
        assert offset is not None
        assert partition is not None
        ids[number] = position_id(offset, partition)

    return delivered


def _labelled(plan: GraphPlan, label: str) -> GraphPlan:
    """Give topics, jobs and indexes names of their own, so that no run meets another."""

    def topic(found: TopicPlan) -> TopicPlan:
        return replace(found, name=f"{found.name}.{label}")

    return replace(
        plan,
        topics=tuple(map(topic, plan.topics)),
        jobs=tuple(
            replace(job, job_id=f"{job.job_id}.{label}", inputs=tuple(map(topic, job.inputs)), output=topic(job.output))
            for job in plan.jobs
        ),
        indexes=tuple(
            replace(index, topic=f"{index.topic}.{label}", asset=_asset(index.asset, label)) for index in plan.indexes
        ),
    )


def _asset(asset: bytes, label: str) -> bytes:
    return sha256(asset + label.encode()).digest()[:8]


def _interleaved(rng: Random, parts: Sequence[Part], bursts: int) -> list[list[tuple[Part, str, Arrival]]]:
    """Mix the traces of all sources at random, each in its own order, and cut the whole into bursts."""
    left = {
        (at, name): list(reversed(arrived))
        for at, part in enumerate(parts)
        for name, arrived in part.case.traces.items()
    }
    order = [key for key, arrived in left.items() for _ in arrived]
    rng.shuffle(order)
    mixed = [(parts[at], name, left[at, name].pop()) for at, name in order]
    cuts = sorted(rng.randrange(len(mixed) + 1) for _ in range(bursts - 1))
    return [mixed[low:high] for low, high in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]
