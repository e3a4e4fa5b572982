"""Cases on topics: their plans under names of their own, what arrives at their sources, and what is on their topics."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer

from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.connection import kafka_logger
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.identity import position_id, position_ids
from caraway.graph.plan.model import GraphPlan, IndexPlan, TopicPlan
from caraway.graph.plan.planner import plan_graph
from tests.messages import ends_of, messages_on
from tests.parity.graphs import Case
from tests.parity.indexing import Index
from tests.parity.suites import expected_of
from tests.parity.traces import Arrival

Lot = Sequence[tuple["Part", str, Arrival]]


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


class Offline(Protocol):
    """Reads the topics of a run offline, as a query in process does and as the tasks of Spark do."""

    def read(
        self, part: Part, dataset: str, asked: Sequence[tuple[tuple[object, ...], int]], columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]: ...

    def read_divided(
        self,
        part: Part,
        dataset: str,
        asked: Sequence[tuple[tuple[object, ...], int]],
        columns: Sequence[str],
        limit: int,
    ) -> tuple[list[list[object]], list[bool]] | None: ...


class Traffic:
    """Cases, the topics of their plans, and an index that follows these.

    Attributes:
        parts: The cases with their plans.
        index: Follows the topics, and is read.
        archived: Reads the topics offline, if the run archives them.
    """

    def __init__(self, servers: str, index: Index, cases: Sequence[Case], label: str) -> None:
        """Plan cases with random expectations; `label` tells those apart that come to the same broker and index."""
        self.parts = [
            Part(case, _labelled(plan_graph(expected_of(case).graph), f"{label}-{number}"), {})
            for number, case in enumerate(cases)
        ]
        self.index = index
        self.servers = servers
        self.archived: Offline | None = None
        self._rng = Random(repr([case.seed for case in cases]))

    def open(self) -> None:
        """Make the topics, of one partition or two, and begin to follow them."""
        topics = [topic.name for part in self.parts for topic in part.plan.topics]
        one = {name for name in topics if self._rng.random() < 0.5}
        ensure_topics(self.servers, {*one, DEAD_LETTERS}, 1)
        ensure_topics(self.servers, set(topics) - one, 2)
        self.index.set_plans([index for part in self.parts for index in part.plan.indexes])

    def close(self) -> None:
        """Follow no topics any more."""
        self.index.set_plans([])

    def lots(self, bursts: int) -> list[Lot]:
        """Mix the traces of all sources at random, each in its own order, and cut the whole into bursts."""
        left = {
            (at, name): list(reversed(arrived))
            for at, part in enumerate(self.parts)
            for name, arrived in part.case.traces.items()
        }
        order = [key for key, arrived in left.items() for _ in arrived]
        self._rng.shuffle(order)
        mixed = [(self.parts[at], name, left[at, name].pop()) for at, name in order]
        cuts = sorted(self._rng.randrange(len(mixed) + 1) for _ in range(bursts - 1))
        return [mixed[low:high] for low, high in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]

    def send(self, lot: Lot) -> None:
        """Write records, and wait until they are durable."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "linger.ms": 0,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
            },
            logger=kafka_logger(),
        )
        waiting: dict[str, _Block] = {}
        for part, dataset, arrival in lot:
            topic, ids = part.topic(dataset), part.ids.setdefault(dataset, {})
            # A record that is sent again must be recognised: by an id of its own.
            named = part.case.repeats(dataset)
            if named:
                ids[arrival.number] = position_id(arrival.number, 0)
            codec = RecordCodec(topic.schema)
            value = codec.encode_value(
                op=DELETE if arrival.delete else PUT,
                time_us=arrival.time_us,
                ingested_us=arrival.number,
                row=[arrival.row[column.name] for column in topic.schema.columns],
                record_id=ids[arrival.number] if named else None,
            )
            key = codec.encode_key([arrival.row[key.name] for key in topic.schema.keys])
            block = waiting.setdefault(topic.name, _Block(topic.name, {} if named else ids))
            block.add(arrival.number, value)
            # Records without a key may come in blocks.
            if key is not None or self._rng.random() < 1 / 3:
                waiting.pop(topic.name).send(producer, key)
            producer.poll(0)
        for block in waiting.values():
            block.send(producer, None)
        assert producer.flush(30) == 0

    def records(self, topic: TopicPlan) -> list[Message]:
        """Read a topic from its beginning to its end."""
        consumer = self._consumer()
        try:
            return messages_on(consumer, topic.name)
        finally:
            consumer.close()

    def ends(self) -> dict[str, dict[int, int]]:
        """Return how long the partitions of all topics are."""
        consumer = self._consumer()
        try:
            return {topic.name: ends_of(consumer, topic.name) for part in self.parts for topic in part.plan.topics}
        finally:
            consumer.close()

    def indexed(self) -> dict[str, dict[int, int]]:
        """Return how far the indexes are, by asset; those are missing that may still have to send rows."""
        return {status.asset: status.offsets for status in self.index.positions() if not status.unsent}

    def _consumer(self) -> Consumer:
        config = {"bootstrap.servers": self.servers, "group.id": "parity", "enable.auto.commit": False}
        return Consumer(config, logger=kafka_logger())


@dataclass
class _Block:
    """Records for a message; the identities of their positions are noted in `ids` by the numbers of the arrivals."""

    topic: str
    ids: dict[int, bytes]
    numbers: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def add(self, number: int, value: bytes) -> None:
        self.numbers.append(number)
        self.values.append(value)

    def send(self, producer: Producer, key: bytes | None) -> None:
        value = self.values[0] if len(self.values) == 1 else block_of(self.values)
        producer.produce(self.topic, value, key, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, partition = message.offset(), message.partition()
        assert offset is not None
        assert partition is not None
        self.ids |= zip(self.numbers, position_ids(offset, partition, len(self.numbers)), strict=True)


def _labelled(plan: GraphPlan, label: str) -> GraphPlan:
    """Rename topics, jobs and indexes, so that no run meets another."""

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
            replace(
                index,
                topic=f"{index.topic}.{label}",
                asset=_asset(index.asset, label),
                emits=None if index.emits is None else topic(index.emits),
            )
            for index in plan.indexes
        ),
        checks=tuple(
            replace(check, topic=topic(check.topic), erased_on=f"{check.erased_on}.{label}") for check in plan.checks
        ),
    )


def _asset(asset: bytes, label: str) -> bytes:
    return sha256(asset + label.encode()).digest()[:8]
