"""An aggregation whose rows are emitted, what happens to its events, and what must be on its topic in the end."""

import random
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer, TopicPartition

from caraway.plan import IndexPlan
from caraway.topics import ensure_topics
from caraway.topics.producer import TopicWriter
from tests.unit.index.oracle import Case, case
from tests.unit.index.test_against_engine import LATE
from tests.unit.index.test_emission import SESSION, Fickle, Topic, check_rows, few, rows_of

CASES = {
    "buckets": few(case("buckets", LATE)),
    "sessions": few(case("sessions", (None,), groupby=SESSION)),
}
PARTITIONS = 2


def emitting(name: str, label: str) -> IndexPlan:
    """Plan the index of a case that emits its rows, on topics of its own."""
    found = CASES[name]
    rows = rows_of(found)
    return replace(
        found.plan,
        revised=True,
        topic=f"contributions.{name}.{label}",
        asset=f"rows {name:.3}".encode(),
        emits=replace(rows, name=f"rows.{name}.{label}"),
    )


@dataclass
class Events:
    """Events that come, move and go, as aggregate inputs on a topic."""

    name: str
    label: str
    writer: TopicWriter
    broker: str
    rng: random.Random = field(default_factory=lambda: random.Random(3))  # noqa: S311 - a trace, not a secret

    def __post_init__(self) -> None:
        self.plan = emitting(self.name, self.label)
        assert self.plan.emits is not None
        self.rows = self.plan.emits
        found = CASES[self.name]
        revised = Case(found.name, found.operator, found.keyed)
        revised.plan = self.plan
        self.found = revised
        self.fickle = Fickle(revised)
        self.sent = 0
        ensure_topics(self.broker, [self.plan.topic, self.rows.name], PARTITIONS)

    def send(self, count: int) -> None:
        """Write what happens to some events; return when it is durable."""
        for _ in range(count):
            key, value, _, _ = self.fickle.change(self.rng)
            assert value is not None
            self.writer.write(self.plan.topic, [(key, value, None)]).result()
        self.sent += count

    def check(self) -> int:
        """Compare what is on the topic of the rows with the engine's rows; return how many records there are."""
        topic = Topic(self.rows, self.rng)
        topic.records = read(self.broker, self.rows.name)
        check_rows(self.found, topic, self.fickle.engine())
        return len(topic.records)


def read(broker: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Read a topic from its beginning to its end."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "rows", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions]
        consumer.assign(partitions)
        records: list[tuple[bytes, bytes]] = []
        while len(records) < sum(ends):
            records += [(m.key() or b"", m.value() or b"") for m in consumer.consume(1000, 0.2)]
        return records
    finally:
        consumer.close()
