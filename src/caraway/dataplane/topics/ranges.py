"""Reading ranges of offsets for the requests of a server, through one consumer that they share.

A consumer for each request would take connections, threads and buffers of its own, so that many requests together would
take hundreds of MB.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from caraway.dataplane.topics.polling import poll_some
from caraway.errors import UnavailableError

# The settings of a consumer that reads ranges.
CONFIG: Mapping[str, Any] = {
    "enable.auto.commit": False,
    # The last messages of a range may have been removed. Then only the report that the partition's end is reached shows
    # that the range is complete.
    "enable.partition.eof": True,
    # When the messages of a request have come, librdkafka requests the next ones at once. If there are none, the broker
    # answers after these milliseconds, and the consumer's next request waits for that answer.
    "fetch.wait.max.ms": 5,
    # The kB of messages that librdkafka may fetch ahead and keep in memory.
    "queued.max.messages.kbytes": 8 * 1024,
}


class SharedConsumer:
    """A consumer that is opened when it is first used. Thread safe: its users wait for each other."""

    def __init__(self, opened: Callable[[], Consumer], what: str) -> None:
        """Prepare; nothing is opened yet.

        Args:
            opened: Returns a new consumer.
            what: The things that are read, for messages, such as "dead letters".
        """
        self._open = opened
        self._what = what
        self._opened: Consumer | None = None
        self._lock = threading.Lock()

    @contextmanager
    def used(self, timeout_s: float) -> Iterator[Consumer]:
        """Yield the consumer, to this caller alone. After an error it is closed, and the next use opens another one.

        Raises `UnavailableError` if others use it for longer than the timeout, in seconds, or for errors of Kafka.
        """
        if not self._lock.acquire(timeout=timeout_s):
            raise UnavailableError(f"other requests for {self._what} take too long; ask again later")
        try:
            if self._opened is None:
                self._opened = self._open()
            with told(self._what):
                yield self._opened
                # An assigned consumer would go on to fetch messages that nobody has asked for.
                self._opened.unassign()
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the connection; a later use opens it again."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise `UnavailableError` for errors of Kafka, which name the things that are read."""
    try:
        yield
    except KafkaException as error:
        raise UnavailableError(f"Kafka didn't return the {what}: {error}") from error


def messages_between(
    consumer: Consumer, topic: str, ranges: Mapping[int, tuple[int, int]], *, batch: int, deadline: float, late: str
) -> Iterator[Message]:
    """Yield the messages from a first offset up to, not including, an end of each partition.

    Args:
        consumer: The consumer, which is assigned these partitions.
        topic: The topic.
        ranges: The first offset and the end, by partition.
        batch: The most messages that one poll returns.
        deadline: The time of `time.monotonic` by which all have come.
        late: The message of the error if they haven't.

    Raises:
        UnavailableError: They haven't come in time.
        KafkaException: Kafka reports an error.
    """
    left = {partition: end for partition, (_, end) in ranges.items()}
    consumer.assign([TopicPartition(topic, partition, begin) for partition, (begin, _) in ranges.items()])
    while left:
        if time.monotonic() > deadline:
            raise UnavailableError(late)
        for message in poll_some(consumer, batch, 0.2):
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (its public name)
                    raise KafkaException(error)
                left.pop(partition, None)
                continue
            end = ranges[partition][1]
            if offset < end:
                yield message
            if offset + 1 >= end:
                left.pop(partition, None)
