"""Marks on messages: the origins of their records in a header, by which a repeated row is found on the topic.

A request that is sent again, and a source that is read again after a crash, first read the marks of what was written
before. So the position of a source is kept with its data, and no row is written twice.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from caraway.dataplane.topics.connection import consumer_config, kafka_logger
from caraway.dataplane.topics.polling import poll_some
from caraway.errors import UnavailableError

READ_TIMEOUT_S = 30.0
READ_BATCH = 5_000

# The records of one payload that were written before. Each is given by the name of its dataset and its mark, which
# names the row.
Written = frozenset[tuple[str, str]]
# The offset from which each partition is read, by topic and number of the partition.
Starts = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of the records of one payload.

    Attributes:
        header: The name of the header.
        key: The identity of the payload: a request's idempotency key, or the name of a source.
        mark: Returns the mark of a row by its number in the payload. It contains no colon, no comma and no tilde.
        run: Returns a text for the marks of the rows from one number up to another one, which `expanded` takes apart:
            in a block of many records it is short. None if there is no such text.
        written: The marks of records that have been written before.
    """

    header: str
    key: str
    mark: Callable[[int], str] = str
    run: Callable[[int, int], str] | None = None
    written: Collection[tuple[str, str]] = frozenset()

    def of(self, dataset: str, row: int, change: int = 0) -> str | None:
        """Return the mark of a record, which names the row and the change in it; None if it was written before."""
        mark = f"{self.mark(row)}.{change}" if change else self.mark(row)
        return None if self.written and (dataset, mark) in self.written else mark

    def headers(self, dataset: str, marks: Iterable[str]) -> Mapping[str, bytes]:
        """Return the headers of a message with records of these marks."""
        return {self.header: f"{','.join(marks)}:{dataset}:{self.key}".encode()}

    def headers_of(self, dataset: str, records: Iterable[tuple[int, int]]) -> Iterable[Mapping[str, bytes] | None]:
        """Yield the headers of messages with a record each, by their rows and changes; None for one written before."""
        name, behind = self.header, f":{dataset}:{self.key}"
        for row, change in records:
            mark = self.of(dataset, row, change)
            yield None if mark is None else {name: (mark + behind).encode()}


def run_of(name: str, first: int, last: int) -> str:
    """Return a text for the marks `name/first`, ..., `name/last`."""
    return f"{name}/{first}" if first == last else f"{name}/{first}~{last}"


def expanded(text: str) -> Iterable[str]:
    """Yield each mark in the text of a header: marks with commas between them, and texts of `run_of`."""
    for mark in text.split(","):
        name, is_run, last = mark.partition("~")
        if is_run:
            name, _, first = name.rpartition("/")
            yield from (f"{name}/{number}" for number in range(int(first), int(last) + 1))
        else:
            yield mark


def read_marks(
    bootstrap_servers: str,
    starts: Callable[[Consumer], Starts],
    *,
    header: str,
    key: str,
    timeout_s: float = READ_TIMEOUT_S,
) -> Written:
    """Return the marks of a payload on messages from some offsets until now; the caller waits meanwhile.

    Args:
        bootstrap_servers: The broker.
        starts: Returns the first offsets that are read.
        header: The name of the header.
        key: The identity of the payload.
        timeout_s: How long reading may take, in seconds.

    Raises:
        UnavailableError: Kafka doesn't answer in time.
    """
    config = consumer_config(bootstrap_servers) | {"group.id": "caraway-read-back", "enable.auto.commit": False}
    consumer = Consumer(config, logger=kafka_logger())
    try:
        return frozenset(_marks(_messages(consumer, starts(consumer), timeout_s), header, key))
    except KafkaException as error:
        raise UnavailableError(f"Kafka didn't tell which rows are there already: {error}") from error
    finally:
        consumer.close()


def starts_since(topics: Collection[str], since_ms: int) -> Callable[[Consumer], Starts]:
    """Return a function that returns the offsets of the first records that were written at or after an instant."""

    def starts(consumer: Consumer) -> Starts:
        wanted = [
            TopicPartition(topic, partition, since_ms)
            for topic in topics
            for partition in consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        ]
        found: dict[str, dict[int, int]] = {}
        for start in consumer.offsets_for_times(wanted, timeout=READ_TIMEOUT_S):
            # Kafka returns a negative offset if nothing was written to a partition since the instant. Nothing of such a
            # partition is read.
            if start.offset >= 0:
                found.setdefault(start.topic, {})[start.partition] = start.offset
        return found

    return starts


def _messages(consumer: Consumer, starts: Starts, timeout_s: float) -> Iterable[Message]:
    """Yield the records from some offsets until now."""
    deadline = time.monotonic() + timeout_s
    ends: dict[tuple[str, int], int] = {}
    begun = []
    for topic, partitions in starts.items():
        for partition, offset in partitions.items():
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT_S)
            begin = max(low, offset)
            if begin < end:
                ends[topic, partition] = end
                begun.append(TopicPartition(topic, partition, begin))
    consumer.assign(begun)
    while ends:
        if time.monotonic() > deadline:
            raise UnavailableError("Kafka took too long to tell which rows are there already; try again")
        for message in poll_some(consumer, READ_BATCH, 0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            position = (str(message.topic()), int(message.partition() or 0))
            if int(message.offset() or 0) + 1 >= ends.get(position, 0):
                ends.pop(position, None)
            yield message


def _marks(messages: Iterable[Message], header: str, key: str) -> Iterable[tuple[str, str]]:
    for message in messages:
        headers: Iterable[tuple[str, bytes | None]] = message.headers() or ()  # type: ignore[assignment]
        for name, value in headers:
            if name == header and value is not None:
                marks, dataset, of = value.decode().split(":", 2)
                if of == key:
                    yield from ((dataset, mark) for mark in expanded(marks))
