"""Topics on a real broker: created once, written durably, to the partitions that Java chooses."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import InvalidInputError, UnavailableError
from tests.effort import examples
from tests.timeouts import deadline_in

NOWHERE = "127.0.0.1:9"


@pytest.fixture
def topic() -> str:
    return f"topics.{secrets.token_hex(6)}"


@pytest.fixture(params=[False, True], ids=["by reports", "by drain"])
def writer(kafka: str, request: pytest.FixtureRequest) -> Iterator[TopicWriter]:
    with TopicWriter(kafka, timeout_s=10, by_drain=request.param) as opened:
        yield opened


def sizes(kafka: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in range(partitions)]
        return [end for _, end in ends]
    finally:
        consumer.close()


def read(kafka: str, topic: str, partitions: int) -> list[tuple[bytes | None, bytes | None, int]]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        count = sum(sizes(kafka, topic, partitions))
        messages = consumer.consume(count, timeout=20)
        return [(m.key(), m.value(), m.partition() or 0) for m in messages]
    finally:
        consumer.close()


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition by Java's default partitioner (org.apache.kafka.common.utils.Utils.murmur2)."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for place in range(0, whole, 4):
        k = int.from_bytes(key[place : place + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


def test_topics_are_made_once_and_kept_forever(kafka: str, topic: str) -> None:
    for partitions in (3, 5):
        ensure_topics(kafka, [topic, topic + ".b"], partitions)
    admin = AdminClient({"bootstrap.servers": kafka})
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (config,) = admin.describe_configs([resource]).values()
    assert config.result()["retention.ms"].value == "-1"
    ensure_topics(kafka, [], 3)


def test_ends_are_found_of_partitions_that_have_no_leader_yet(kafka: str, topic: str) -> None:
    admin, ends = AdminClient({"bootstrap.servers": kafka}), TopicEnds(kafka)
    for attempt in range(examples(20)):
        names = {f"{topic}.{attempt}.{place}" for place in range(2)}
        futures = admin.create_topics([NewTopic(name, 10, 1) for name in names])
        # The partitions are listed before they have leaders; if brokers were asked only once, this would fail
        # ten times in an attempt.
        deadline = deadline_in(60)
        while (found := ends.ends(names)).keys() != names:
            assert time.monotonic() < deadline, found
        assert found == {name: dict.fromkeys(range(10), 0) for name in names}
        for future in futures.values():
            future.result(60)


def test_a_broker_that_is_away_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnavailableError, match=f"no Kafka broker answers at {NOWHERE}"):
        ensure_topics(NOWHERE, ["x"], 1, timeout_s=1)
    with (
        caplog.at_level(logging.DEBUG, "caraway.kafka"),
        TopicWriter(NOWHERE, timeout_s=1) as writer,
        pytest.raises(UnavailableError, match="didn't take a row for the topic x"),
    ):
        writer.write("x", [(None, b"", None)]).result(20)
    assert 1 <= len(caplog.records) < 10


def test_writes_that_are_known_by_a_drain_fail_if_the_broker_is_away() -> None:
    with TopicWriter(NOWHERE, timeout_s=1, by_drain=True) as writer:
        writes = [writer.write("x", [(None, b"", None)] * rows) for rows in (1, 3)]
        for write in writes:
            with pytest.raises(UnavailableError, match="didn't take a row for the topic x"):
                write.result(20)


def test_writes_that_are_known_by_a_drain_fail_when_the_writer_closes() -> None:
    writer = TopicWriter(NOWHERE, by_drain=True)
    write = writer.write("x", [(None, b"", None)])
    writer.close(0.1)
    with pytest.raises(UnavailableError):
        write.result(20)


def test_a_topic_that_is_not_there_is_an_error(writer: TopicWriter, topic: str) -> None:
    with pytest.raises(UnavailableError, match="Unknown topic"):
        writer.write(topic, [(None, b"1", None), (None, b"2", None)]).result(20)


def test_a_row_that_is_too_large_is_an_error_and_others_arrive(kafka: str, writer: TopicWriter, topic: str) -> None:
    ensure_topics(kafka, [topic], 1)
    with pytest.raises(InvalidInputError, match="too large"):
        writer.write(topic, [(None, b"small", None), (None, bytes(3_000_000), None)]).result(20)
    assert [value for _, value, _ in read(kafka, topic, 1)] == [b"small"]


def test_keys_go_where_java_sends_them_and_the_rest_is_spread(kafka: str, writer: TopicWriter, topic: str) -> None:
    ensure_topics(kafka, [topic, topic + ".b"], 4)
    keys = [secrets.token_bytes(n % 23 + 1) for n in range(400)]
    writer.write(topic, [(key, b"v", {"h": b"1"}) for key in keys]).result(20)
    for key, _, partition in read(kafka, topic, 4):
        assert partition == murmur2_partition(key or b"", 4)
    # A partition whose leader isn't known yet, as after the creation of its topic, is skipped for a moment.
    deadline = deadline_in(30)
    while min(sizes(kafka, topic + ".b", 4)) == 0:
        assert time.monotonic() < deadline, sizes(kafka, topic + ".b", 4)
        writer.write(topic + ".b", [(None, b"v", None)] * 20).result(20)


def test_a_record_for_every_partition(kafka: str, writer: TopicWriter, topic: str) -> None:
    ensure_topics(kafka, [topic], 3)
    for _ in range(2):
        writer.write_to_all(topic, b"key", b"value").result(20)
    assert sizes(kafka, topic, 3) == [2, 2, 2]
    assert {(key, value) for key, value, _ in read(kafka, topic, 3)} == {(b"key", b"value")}
    with pytest.raises(UnavailableError, match=f"{topic}.none"):
        writer.write_to_all(f"{topic}.none", b"key", b"value").result(20)


def test_writes_can_be_awaited(kafka: str, writer: TopicWriter, topic: str) -> None:
    ensure_topics(kafka, [topic], 2)

    async def write_many() -> None:
        await asyncio.gather(*(asyncio.wrap_future(writer.write(topic, [(b"%d" % n, b"v", None)])) for n in range(200)))
        with pytest.raises(UnavailableError):
            await asyncio.wrap_future(writer.write(topic + ".none", [(None, b"v", None)]))

    asyncio.run(write_many())
    assert sum(sizes(kafka, topic, 2)) == 200
    assert writer.waiting() == 0


def test_no_row_of_a_new_topic_is_lost_or_doubled(kafka: str, writer: TopicWriter, topic: str) -> None:
    """Check writes to a new topic, where the first requests may be refused and later ones must not overtake them."""
    for round_ in range(15):
        name = f"{topic}.{round_}"
        ensure_topics(kafka, [name], 2)
        futures = [writer.write(name, [(b"%d" % (n % 50), b"%d" % n, None)]) for n in range(300)]
        for future in futures:
            future.result(20)
        assert Counter(value for _, value, _ in read(kafka, name, 2)) == Counter(b"%d" % n for n in range(300))


def test_a_producer_that_can_not_go_on_is_replaced(kafka: str, writer: TopicWriter, topic: str) -> None:
    ensure_topics(kafka, [topic], 1)
    writer.write(topic, [(None, b"1", None)]).result(20)
    before = writer._producer
    writer._on_error(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    deadline = deadline_in(20)
    while writer._producer is before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    writer.write(topic, [(None, b"2", None)]).result(20)
    assert [value for _, value, _ in read(kafka, topic, 1)] == [b"1", b"2"]


def test_a_closed_writer_takes_nothing(kafka: str, topic: str) -> None:
    ensure_topics(kafka, [topic], 1)
    writer = TopicWriter(kafka)
    last = writer.write(topic, [(None, b"v", None)] * 1000)
    writer.close()
    writer.close()
    assert last.result(0) is None
    assert sizes(kafka, topic, 1) == [1000]
    with pytest.raises(UnavailableError, match="closed"):
        writer.write(topic, [(None, b"v", None)]).result(1)
    assert writer.write(topic, []).result(0) is None
