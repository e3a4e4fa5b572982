"""Reading dead letters: the newest ones before a position, or a single one by its position on the topic."""

import heapq
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from caraway.dataplane.topics.connection import consumer_config, kafka_logger
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.ranges import CONFIG, SharedConsumer, messages_between, told
from caraway.errors import InvalidInputError

WHAT = "dead letters"
READ_TIMEOUT_S = 10.0
# The most messages that one poll returns.
READ_BATCH = 500
_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter.

    Attributes:
        partition: Its partition of the topic.
        offset: Its offset in the partition.
        written_ms: When it was written, in milliseconds since the epoch.
        body: The content: dataset, reason, row and origin of the row.
        key: Its Kafka key.
    """

    partition: int
    offset: int
    written_ms: int
    body: Mapping[str, Any]
    key: bytes

    @property
    def id(self) -> str:
        """The id of the dead letter: partition and offset."""
        return f"{self.partition}-{self.offset}"


def parse_id(text: str) -> tuple[int, int]:
    """Return partition and offset of a dead letter's id. Raises `InvalidInputError` if the text isn't such an id."""
    found = _ID.fullmatch(text)
    if found is None:
        raise InvalidInputError(f"{text[:40]!r} is no id of a dead letter, such as 0-17")
    return int(found[1]), int(found[2])


class LetterReader:
    """Reads the newest dead letters, and single ones, for the requests of a server. Thread safe."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Prepare; the consumer is made with the first request.

        Args:
            bootstrap_servers: The broker, "host:port".
        """
        self._consumer = SharedConsumer(lambda: _open(bootstrap_servers), WHAT)

    def newest(self, before: Mapping[int, int], count: int) -> list[Letter]:
        """Return at most `count` dead letters, newest first. Blocks.

        Args:
            before: By partition, the offset below which dead letters are returned; without an entry, all may be
                returned.
            count: How many dead letters are read.

        Raises:
            UnavailableError: Kafka doesn't answer in time.
        """
        with self._consumer.used(READ_TIMEOUT_S) as consumer:
            partitions = _partitions(consumer)
            wanted: dict[int, tuple[int, int]] = {}
            for partition in partitions:
                low, high = _offsets(consumer, partition)
                end = min(high, before.get(partition, high))
                begin = max(low, end - -(-count // len(partitions)))
                if begin < end:
                    wanted[partition] = (begin, end)
            found = _read(consumer, wanted)
        # Within a partition the merge keeps the order of offsets. A sort by time might change that order, since the
        # clocks of the writers may differ.
        parts = (reversed(letters) for letters in found.values())
        return list(heapq.merge(*parts, key=lambda letter: -letter.written_ms))

    def at(self, partition: int, offset: int) -> Letter | None:
        """Return the dead letter at a position; None if there is none. Blocks.

        Raises `UnavailableError` if Kafka doesn't answer in time.
        """
        with self._consumer.used(READ_TIMEOUT_S) as consumer:
            if partition not in _partitions(consumer):
                return None
            low, high = _offsets(consumer, partition)
            if not low <= offset < high:
                return None
            found = _read(consumer, {partition: (offset, offset + 1)})[partition]
            return found[0] if found else None

    def close(self) -> None:
        """End the connection; a later request opens it again."""
        self._consumer.close()


def every(bootstrap_servers: str) -> Iterator[list[Letter]]:
    """Yield all dead letters that are there now, some hundreds at a time. Blocks.

    Raises `UnavailableError` if Kafka doesn't answer in time.
    """
    consumer = _open(bootstrap_servers)
    try:
        with told(WHAT):
            for partition in _partitions(consumer):
                low, high = _offsets(consumer, partition)
                for begin in range(low, high, READ_BATCH):
                    yield _read(consumer, {partition: (begin, min(begin + READ_BATCH, high))})[partition]
    finally:
        consumer.close()


def _open(bootstrap_servers: str) -> Consumer:
    config = {**CONFIG, "group.id": "caraway-dead-letters"}
    return Consumer(consumer_config(bootstrap_servers) | config, logger=kafka_logger())


def _offsets(consumer: Consumer, partition: int) -> tuple[int, int]:
    """Return the first offset of a partition, and that behind its last one."""
    low, high = consumer.get_watermark_offsets(TopicPartition(DEAD_LETTERS, partition), timeout=READ_TIMEOUT_S)
    return int(low), int(high)


def _partitions(consumer: Consumer) -> list[int]:
    return sorted(consumer.list_topics(DEAD_LETTERS, timeout=READ_TIMEOUT_S).topics[DEAD_LETTERS].partitions)


def _read(consumer: Consumer, wanted: Mapping[int, tuple[int, int]]) -> dict[int, list[Letter]]:
    """Return the dead letters from offset `begin` to `end` of each partition."""
    found: dict[int, list[Letter]] = {partition: [] for partition in wanted}
    late = "Kafka took too long to return the dead letters; ask for fewer with limit"
    deadline = time.monotonic() + READ_TIMEOUT_S
    for message in messages_between(consumer, DEAD_LETTERS, wanted, batch=READ_BATCH, deadline=deadline, late=late):
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        letter = _letter(partition, offset, message.timestamp()[1], message.value(), message.key())
        if letter is not None:
            found[partition].append(letter)
    return found


def _letter(
    partition: int, offset: int, written_ms: int, value: bytes | str | None, key: bytes | str | None
) -> Letter | None:
    """Return the dead letter in a message; None for other messages, which any client of the broker may write."""
    try:
        body = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("dataset"), str) or not isinstance(key, bytes):
        return None
    return Letter(partition=partition, offset=offset, written_ms=written_ms, body=body, key=key)
