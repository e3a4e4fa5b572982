"""The messages of a dataset's topic, in order: from the archive first, if the topic begins later."""

from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import KafkaException

from caraway.dataplane.topics.reader import COMMON, LOST_OFFSET, Message, Past, Reading, TopicReader
from caraway.dataplane.topics.truncation import Continuation, Reached, continuation
from caraway.errors import UnavailableError

# With these limits, the reader of a sink buffers at most a few MB of messages.
READING = Reading(
    COMMON
    | {
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": 2 * 1024,
        "fetch.message.max.bytes": 512 * 1024,
    },
    batch=1_000,
)


class Feed(Protocol):
    """The messages of one topic, from given offsets on. All methods raise `UnavailableError` if they can't be read."""

    def partitions(self) -> list[int]:
        """Return the partitions of the topic."""
        ...

    def start(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets on."""
        ...

    def read(self, timeout_s: float) -> list[Message]:
        """Return the next messages, in the order of each partition; none if there are none within the time."""
        ...

    def positions(self) -> Mapping[int, int]:
        """Return the offset behind the last message that was read, by partition."""
        ...

    def epochs(self) -> Mapping[int, int]:
        """Return the epoch in which the last message that was read was written, by partition, where it is known."""
        ...

    def continuation(self, reached: Reached) -> Continuation:
        """Return where the topic can be read by somebody who has read so much of it, which may since be lost."""
        ...

    def ends(self) -> Mapping[int, int]:
        """Return the last known end of each partition; partitions without a known end are missing."""
        ...

    def lag(self) -> int | None:
        """Return how many messages aren't read yet; None if that isn't known."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class TopicFeed:
    """A `Feed` from Kafka and the archive."""

    def __init__(self, bootstrap_servers: str, topic: str, past: Past) -> None:
        """Prepare.

        Args:
            bootstrap_servers: The deployment's own broker.
            topic: The topic.
            past: The archived messages of the topic.
        """
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._past = past
        self._reader = TopicReader(bootstrap_servers, READING)

    def partitions(self) -> list[int]:
        """Return the partitions of the topic."""
        try:
            found = self._reader.topics().get(self._topic)
        except KafkaException as error:
            raise UnavailableError(f"topic {self._topic} can't be read: {error.args[0].str()}") from error
        if found is None or found.error is not None or not found.partitions:
            raise UnavailableError(f"the topic {self._topic} isn't there yet")
        return sorted(found.partitions)

    def start(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets on."""
        self._reader.start(self._topic, offsets, self._past)

    def read(self, timeout_s: float) -> list[Message]:
        """Return the next messages; see `Feed.read`."""
        try:
            taken = self._reader.read(timeout_s)
        except KafkaException as error:
            raise UnavailableError(f"topic {self._topic} can't be read: {error.args[0].str()}") from error
        if taken.waiting:
            raise UnavailableError(f"topic {self._topic}: {taken.waiting[self._topic]}")
        # librdkafka reconnects to a lost broker by itself. Only an offset that the topic doesn't have requires a new
        # start.
        for _, fault in taken.errors:
            if fault.code() in LOST_OFFSET:
                raise UnavailableError(f"topic {self._topic} can't be read: {fault.str()}")
        return taken.messages.get(self._topic, [])

    def positions(self) -> Mapping[int, int]:
        """Return the offset behind the last message that was read, by partition."""
        return self._reader.positions(self._topic) or {}

    def epochs(self) -> Mapping[int, int]:
        """Return the epochs of the last messages; see `Feed.epochs`."""
        return dict(self._reader.epochs(self._topic))

    def continuation(self, reached: Reached) -> Continuation:
        """Return where the topic can be read; see `Feed.continuation`."""
        return continuation(self._bootstrap_servers, self._topic, reached)

    def ends(self) -> Mapping[int, int]:
        """Return the last known end of each partition; partitions without a known end are missing."""
        return self._reader.ends(self._topic)

    def lag(self) -> int | None:
        """Return how many messages aren't read yet; None if that isn't known."""
        return self._reader.lag(self._topic)

    def close(self) -> None:
        """End the connection."""
        self._reader.close()
