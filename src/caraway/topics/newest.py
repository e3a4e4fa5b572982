"""Reading the newest messages of a topic, for samples of a dataset's rows."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from caraway.errors import UnavailableError
from caraway.topics.blocks import records_in
from caraway.topics.connection import consumer_config, kafka_logger
from caraway.topics.reader import Message

# The most seconds that a read takes, or waits for another one to end.
READ_TIMEOUT_S = 10.0
# The offsets of each partition that are read at once, going back from its end. A message has at most 1 MB, so a step
# reads no more than this number of MB from each partition.
STEP = 32
# The most offsets of a topic that one read looks at. Markers of waits lie between the rows, and many of them shouldn't
# make a read go through a whole topic.
MAX_SCANNED = 4_000
READ_BATCH = 200
CONFIG: dict[str, Any] = {
    "group.id": "caraway-samples",
    "enable.auto.commit": False,
    # Offsets before an end may have no message: then only the end of the partition is reported.
    "enable.partition.eof": True,
    # As in `caraway.topics.letters`: the next request of the consumer waits for the one that the broker holds.
    "fetch.wait.max.ms": 5,
    "queued.max.messages.kbytes": 8 * 1024,
}

# Returns whether a message with this key is wanted.
Wanted = Callable[[bytes | None], bool]


@dataclass(slots=True)
class _Found:
    """The wanted messages so far, each with the time at which it was written, in milliseconds since the epoch."""

    wanted: Wanted
    messages: list[tuple[int, Message]] = field(default_factory=list)
    records: int = 0
    size: int = 0


class NewestReader:
    """A reader of the newest messages of topics. Thread safe; reads share a consumer and wait for each other."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Prepare to read from the broker "host:port"; the first read connects."""
        self._bootstrap_servers = bootstrap_servers
        self._opened: Consumer | None = None
        self._lock = threading.Lock()

    def newest(self, topic: str, records: int, *, max_bytes: int, wanted: Wanted = lambda _: True) -> list[Message]:
        """Return the newest messages of a topic, newest first. Blocks.

        The messages have about so many records and bytes, or a step more, if there are as many among the last
        `MAX_SCANNED` offsets. A topic that doesn't exist has none.

        Args:
            topic: The topic.
            records: How many records are wanted.
            max_bytes: How many bytes of keys and values are enough.
            wanted: Tells by the key of a message whether it counts.

        Raises:
            UnavailableError: Kafka doesn't answer in time.
        """
        found = _Found(wanted)
        with self._consumer() as consumer:
            bounds = _bounds(consumer, topic)
            scanned, deadline = 0, time.monotonic() + READ_TIMEOUT_S
            while bounds and found.records < records and found.size < max_bytes and scanned < MAX_SCANNED:
                steps = {partition: (max(low, end - STEP), end) for partition, (low, end) in bounds.items()}
                _read(consumer, topic, steps, found, deadline)
                scanned += sum(end - begin for begin, end in steps.values())
                bounds = {p: (low, steps[p][0]) for p, (low, _) in bounds.items() if low < steps[p][0]}
        found.messages.sort(key=lambda pair: (-pair[0], -pair[1][3]))
        return [message for _, message in found.messages]

    def close(self) -> None:
        """End the connection; a later read opens it again."""
        with self._lock:
            self._end()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        if not self._lock.acquire(timeout=READ_TIMEOUT_S):
            raise UnavailableError("other requests for rows of topics take too long; ask again later")
        try:
            if self._opened is None:
                self._opened = Consumer(consumer_config(self._bootstrap_servers) | CONFIG, logger=kafka_logger())
            try:
                yield self._opened
                # An assigned consumer would go on to fetch what nobody has asked for.
                self._opened.unassign()
            except KafkaException as error:
                raise UnavailableError(f"Kafka didn't return the rows: {error}") from error
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()

    def _end(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of each partition that has any offset between them."""
    found = {}
    about = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics.get(topic)
    for partition in () if about is None or about.error is not None else about.partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT_S)
        if low < high:
            found[int(partition)] = (int(low), int(high))
    return found


def _read(
    consumer: Consumer,
    topic: str,
    steps: dict[int, tuple[int, int]],
    found: _Found,
    deadline: float,
) -> None:
    """Add the wanted messages from offset `begin` to `end` of each partition."""
    left = {partition: end for partition, (_, end) in steps.items()}
    consumer.assign([TopicPartition(topic, partition, begin) for partition, (begin, _) in steps.items()])
    while left:
        if time.monotonic() > deadline:
            raise UnavailableError(f"Kafka took longer than {READ_TIMEOUT_S:g} s to return rows of {topic}")
        # `consume` waits until it has as many messages as it may return, or until its time is over.
        for message in chain(consumer.consume(1, timeout=0.2), consumer.consume(READ_BATCH, timeout=0)):
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
                    raise KafkaException(error)
                left.pop(partition, None)
                continue
            key, value = message.key(), message.value()
            if offset < steps[partition][1] and value is not None and found.wanted(key):
                found.messages.append((int(message.timestamp()[1]), (key, value, partition, offset)))
                found.records += records_in(value)
                found.size += len(value) + len(key or b"")
            if offset + 1 >= steps[partition][1]:
                left.pop(partition, None)
