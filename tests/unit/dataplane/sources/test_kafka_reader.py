"""The reader of Kafka topics, over a consumer in memory."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from caraway.dataplane.sources import kafka
from caraway.dataplane.sources.kafka import KafkaReader
from caraway.dtypes.types import DATETIME, INT
from caraway.graph.sources import Cdc, SourceSpec
from tests.unit.dataplane.ingest.contexts import TOPIC, context_of, ingest_of
from tests.unit.graph.building import dataset


@dataclass
class FakeMessage:
    """A message of partition 0, which counts as false if it has no value, as librdkafka's do."""

    at: int
    text: bytes

    def __len__(self) -> int:
        return len(self.text)

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.text


@dataclass
class FakeConsumer:
    """A consumer that has fetched all messages, and hands each over once after it was assigned."""

    topic: list[FakeMessage]
    failures: int = 0
    fetched: list[FakeMessage] = field(default_factory=list)

    def assign(self, partitions: Any) -> None:
        (partition,) = partitions
        self.fetched = self.topic[partition.offset :]

    def poll(self, timeout_s: float) -> FakeMessage | None:
        del timeout_s
        return self.fetched.pop(0) if self.fetched else None

    def consume(self, count: int, timeout_s: float) -> list[FakeMessage]:
        del timeout_s
        found, self.fetched = self.fetched[:count], self.fetched[count:]
        return found

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        del timeout
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, len(self.topic)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    made = FakeConsumer([FakeMessage(n, b"" if n == 2 else b'{"n": %d}' % n) for n in range(8)])
    monkeypatch.setattr(kafka, "Consumer", lambda *_, **__: made)
    monkeypatch.setattr(kafka, "check_brokers", lambda _: None)
    return made


@pytest.fixture
def reader() -> KafkaReader:
    source = SourceSpec(connector=TOPIC, cdc=Cdc.APPEND, disorder_us=0)
    return KafkaReader(TOPIC, context_of(ingest_of(dataset("Events", {"n": INT, "at": DATETIME}), source)))


def marks(reader: KafkaReader, rows: int) -> list[str]:
    batch = reader.poll(rows=rows, size=1 << 20, timeout_s=0.1)
    assert batch is not None
    return [batch.mark(number) for number in range(len(batch.rows))]


@pytest.mark.parametrize("failures", [1, 2])
def test_looks_at_the_partitions_that_fail_at_first_lose_no_record(
    consumer: FakeConsumer, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """The reader calls `poll` for the reason of a failure, and gets records that were fetched before."""
    reader.seek({}, {})
    monkeypatch.setattr(kafka, "PARTITIONS_INTERVAL_S", -1.0)
    found = []
    for rows in (2, 1, 10):
        consumer.failures = failures
        found += marks(reader, rows)
    assert found == [f"0/{offset}" for offset in range(8)]


def test_a_reader_that_is_moved_forgets_the_record_that_it_kept(consumer: FakeConsumer, reader: KafkaReader) -> None:
    reader.seek({"0": 4}, {})
    consumer.failures = 1
    reader.seek({"0": 1}, {})
    assert marks(reader, 10) == [f"0/{offset}" for offset in range(1, 8)]
