"""Reading dead letters from a real broker: many requests share one consumer, and one that failed is replaced."""

import secrets
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from confluent_kafka import Consumer, Producer

from caraway.dataplane.topics import letter_reader as module
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS_CONFIG
from caraway.dataplane.topics.letter_reader import LetterReader
from caraway.errors import UnavailableError

COUNT, PARTITIONS, REQUESTS = 40, 2, 30


@pytest.fixture
def opened(kafka: str, monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """Fill a topic of the test's own with dead letters, and return the list of consumers that are opened."""
    topic = f"letters.{secrets.token_hex(6)}"
    monkeypatch.setattr(module, "DEAD_LETTERS", topic)
    ensure_topics(kafka, [topic], partitions=PARTITIONS, config=DEAD_LETTERS_CONFIG)
    producer = Producer({"bootstrap.servers": kafka})
    for n in range(COUNT):
        body = orjson.dumps({"dataset": "Hives", "row": {"n": n}})
        producer.produce(topic, body, key=b"%d" % n, partition=n % PARTITIONS, timestamp=1_700_000_000_000 + n)
    assert producer.flush(20) == 0
    consumers: list[Consumer] = []
    make = module._open

    def open_one(servers: str) -> Consumer:
        consumers.append(make(servers))
        return consumers[-1]

    monkeypatch.setattr(module, "_open", open_one)
    return consumers


def numbers(found: list[module.Letter]) -> list[int]:
    return [letter.body["row"]["n"] for letter in found]


def test_requests_at_the_same_time_share_one_consumer_and_each_gets_its_own(kafka: str, opened: list[Consumer]) -> None:
    reader = LetterReader(kafka)

    def ask(n: int) -> None:
        if n % 3 == 0:
            before = dict.fromkeys(range(PARTITIONS), n // PARTITIONS)
            assert numbers(reader.newest(before, COUNT)) == list(reversed(range(n // PARTITIONS * PARTITIONS)))
        else:
            found = reader.at(n % PARTITIONS, n // PARTITIONS)
            assert found is not None
            assert (found.id, numbers([found])) == (f"{n % PARTITIONS}-{n // PARTITIONS}", [n])

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(ask, n) for n in range(REQUESTS)]:
            done.result()
    assert reader.at(0, COUNT) is None
    assert reader.at(PARTITIONS, 0) is None
    assert numbers(reader.newest({}, 3)) == [39, 38, 37, 36]
    assert len(opened) == 1
    reader.close()
    assert numbers(reader.newest({}, 2)) == [39, 38]
    reader.close()
    assert len(opened) == 2


def test_a_reader_that_failed_connects_anew(
    kafka: str, opened: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LetterReader(kafka)
    assert reader.at(0, 0) is not None
    opened[0].close()
    with pytest.raises((UnavailableError, RuntimeError)):
        reader.at(0, 0)
    assert reader.at(0, 0) is not None
    reader.close()
    away = LetterReader("127.0.0.1:9")
    monkeypatch.setattr(module, "READ_TIMEOUT_S", 0.3)
    with pytest.raises(UnavailableError, match="Kafka didn't return the dead letters"):
        away.newest({}, 1)
    away.close()
