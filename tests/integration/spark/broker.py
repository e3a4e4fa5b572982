"""A broker and topics for the tests of jobs."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from subprocess import Popen
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from caraway.apps.stack import ports
from caraway.apps.stack.jars import JarSet, ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka, kafka_classes
from caraway.dataplane.topics.codec import Record, RecordCodec
from caraway.graph.plan.model import TopicPlan
from caraway.process.children import process
from caraway.process.settings.settings import load_settings
from tests.messages import positions_of
from tests.timeouts import deadline_in


@dataclass(frozen=True)
class Sent:
    """A record to write to a topic; `key` and `row` are in stored form."""

    row: Sequence[object] | None
    time_us: int
    op: int = 1
    key: Sequence[object] = ()
    ingested_us: int = 0
    record_id: bytes | None = None
    rev: bytes | None = None

    @property
    def values(self) -> list[Any]:
        assert self.row is not None
        return list(self.row)


@dataclass(frozen=True)
class Received:
    """A record of a topic; if it has no identity, its position in the topic is its identity."""

    key: bytes | None
    record: Record
    identity: bytes


@dataclass(frozen=True)
class Awaited:
    """The expected content of a topic, as `view` computes it from all of the topic's records."""

    topic: TopicPlan
    expected: Sequence[Any]
    view: Callable[[Iterable[Received]], list[Any]]


class Broker:
    """A Kafka broker for tests."""

    def __init__(self, folder: Path) -> None:
        port = ports.choose()
        self._part = EmbeddedKafka(
            folder / "kafka",
            port=port,
            controller_port=ports.choose(avoid=[port]),
            jars=jars().broker,
            heap_mb=256,
            java_options=kafka_classes(load_settings().cache_dir, jars().broker).options(),
            with_password=False,
        )
        self._log = folder / "kafka.log"
        self._process: Popen[bytes] | None = None
        self.bootstrap_servers = self._part.bootstrap_servers

    def start(self) -> None:
        self._part.prepare()
        self._process = process.start(self._part.launch(), self._log, SIGTERM)
        deadline = deadline_in(120)
        while (reason := self._check()) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not start: {reason}")
            time.sleep(0.1)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            process.stop(self._process, SIGTERM, 20)

    def create(self, *topics: TopicPlan, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        new = [NewTopic(topic.name, partitions, 1) for topic in topics]
        for future in admin.create_topics(new).values():
            future.result(120)

    def send(self, topic: TopicPlan, records: Iterable[Sent]) -> None:
        codec = RecordCodec(topic.schema)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 0})
        for sent in records:
            value = codec.encode_value(
                op=sent.op,
                time_us=sent.time_us,
                ingested_us=sent.ingested_us,
                row=sent.row,
                record_id=sent.record_id,
                rev=sent.rev,
            )
            producer.produce(topic.name, value, codec.encode_key(sent.key))
            producer.poll(0)
        assert producer.flush(120) == 0

    def receive(
        self,
        topic: TopicPlan,
        expected: Sequence[Any],
        *,
        limit: float = 180,
        view: Callable[[Iterable[Received]], list[Any]] | None = None,
    ) -> list[Any]:
        """Read a topic from its beginning until its consolidated records are as expected, and a second longer.

        On a busy machine no record may come for a while, so reading fails only after `limit` seconds.
        """
        (found,) = self.receive_all([Awaited(topic, expected, view or rows_of)], limit=limit)
        return found

    def receive_all(self, awaited: Sequence["Awaited"], *, limit: float = 180) -> list[list[Any]]:
        """Read some topics at once, as `receive` does, until each is as expected, and a second longer."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
        )
        topics = consumer.list_topics(timeout=30).topics
        consumer.assign([TopicPartition(a.topic.name, p, 0) for a in awaited for p in topics[a.topic.name].partitions])
        places = {a.topic.name: place for place, a in enumerate(awaited)}
        codecs = [RecordCodec(a.topic.schema) for a in awaited]
        received: list[list[Received]] = [[] for _ in awaited]
        found = [a.view(()) for a in awaited]
        deadline, reached = deadline_in(limit), 0.0
        while time.monotonic() < deadline and not 0 < reached < time.monotonic() - 1:
            changed = set()
            for message in consumer.consume(10_000, 0.2):
                place = places[message.topic() or ""]
                received[place] += _received(codecs[place], message)
                changed.add(place)
            for place in changed:
                found[place] = awaited[place].view(received[place])
            if changed or not reached:
                there = all(f == list(a.expected) for f, a in zip(found, awaited, strict=True))
                reached = time.monotonic() if there else 0.0
        consumer.close()
        return found

    def _check(self) -> str | None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        return self._part.check(self._process.pid)


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """Start a broker, yield it, and stop it afterwards."""
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def jars() -> JarSet:
    """Return the jars, from the same cache as `caraway up`."""
    return ensure_jars(load_settings())


def rows_of(records: Iterable[Received]) -> list[list[Any]]:
    """Return the time, op and row of the records that hold, in a fixed order."""
    return sorted(([r.record.time, r.record.op, r.record.row] for r in consolidate(records).values()), key=repr)


def _received(codec: RecordCodec, message: Message) -> list[Received]:
    """Return the records of a message; those of a block have the keys of their rows."""
    assert message.error() is None, message.error()
    assert message.value() is not None
    found = []
    for position, value in positions_of(message):
        record = codec.decode_value(value)
        key = message.key()
        if key is None and record.row is not None:
            key = codec.encode_key(record.row[: len(codec.schema.keys)])
        found.append(Received(key, record, record.id or position))
    return found


def consolidate(records: Iterable[Received]) -> dict[bytes, Received]:
    """Return the records that hold: for each identity that of the greatest revision, and a put before a retraction."""
    held: dict[bytes, Received] = {}
    for received in records:
        known = held.get(received.identity)
        if known is None or _rank(received) >= _rank(known):
            held[received.identity] = received
    return {identity: received for identity, received in held.items() if received.record.op != 0}


def astray(records: Iterable[Received]) -> list[tuple[bytes, Received]]:
    """Return the records that a reader of one key only takes for true, although the row is elsewhere or nowhere.

    A shard of an index that is divided by keys is such a reader: a row that leaves a key must be retracted under that
    key.
    """
    known = list(records)
    held, by_key = consolidate(known), dict[bytes, list[Received]]()
    for received in known:
        if received.key is not None:
            by_key.setdefault(received.key, []).append(received)
    return [
        (key, received)
        for key, of_key in by_key.items()
        for identity, received in consolidate(of_key).items()
        if identity not in held or (held[identity].key, _rank(held[identity])) != (key, _rank(received))
    ]


def _rank(received: Received) -> tuple[bytes, bool]:
    return received.record.rev or b"", received.record.op != 0
