"""An aggregation whose rows are emitted, changes of its events, and the rows that its topic must have at the end."""

import random
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer

from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import IndexPlan
from tests.messages import messages_on
from tests.unit.dataplane.index.oracle import Case, case
from tests.unit.dataplane.index.test_against_engine import LATE
from tests.unit.dataplane.index.test_emission import SESSION, Fickle, Topic, check_rows, few, rows_of

CASES = {
    "buckets": few(case("buckets", LATE)),
    "sessions": few(case("sessions", (None,), groupby=SESSION)),
}
# Windows that the clock closes as well.
CLOCKED = "clocked buckets"
ALL = {**CASES, CLOCKED: few(case(CLOCKED, LATE, by_clock=True))}
PARTITIONS = 2


def emitting(name: str, label: str) -> IndexPlan:
    """Return the index plan of a case that emits its rows, on its own topics."""
    found = ALL[name]
    rows = rows_of(found)
    return replace(
        found.plan,
        revised=True,
        topic=f"contributions.{name.split(maxsplit=1)[0]}.{label}",
        asset=f"rows {name:.3}".encode(),
        emits=replace(rows, name=f"rows.{name.split(maxsplit=1)[0]}.{label}"),
    )


@dataclass
class Events:
    """Events that are added, moved and retracted, as aggregate inputs on a topic."""

    name: str
    label: str
    writer: TopicWriter
    broker: str
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def __post_init__(self) -> None:
        self.plan = emitting(self.name, self.label)
        assert self.plan.emits is not None
        self.rows = self.plan.emits
        found = ALL[self.name]
        revised = Case(found.name, found.operator, found.keyed)
        revised.plan = self.plan
        self.found = revised
        self.fickle = Fickle(revised)
        self.sent = 0
        ensure_topics(self.broker, [self.plan.topic, self.rows.name], PARTITIONS)

    def send(self, count: int) -> None:
        """Write changes of some events; return when they are durable."""
        for _ in range(count):
            key, value, _, _ = self.fickle.change(self.rng)
            assert value is not None
            self.writer.write(self.plan.topic, [(key, value, None)]).result()
        self.sent += count

    def check(self) -> int:
        """Compare the rows on the topic with the engine's; return the number of records on the topic."""
        topic = Topic(self.rows, self.rng)
        topic.records = read(self.broker, self.rows.name)
        check_rows(self.found, topic, self.fickle.engine())
        return len(topic.records)


def read(broker: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Return all records of a topic."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "rows", "enable.auto.commit": False})
    try:
        return [(message.key() or b"", message.value() or b"") for message in messages_on(consumer, topic)]
    finally:
        consumer.close()
