"""The partitions of topics, and their ends."""

import threading
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.positions import is_moving
from caraway.errors import UnavailableError

TIMEOUT_S = 3.0
# The list of topics is read again while some topic isn't known, but not before this many seconds have passed.
PAUSE_S = 0.5
# After a broker didn't answer, it isn't asked again for this many seconds, and requests fail at once. Otherwise each
# request of a series would wait for the broker until its own timeout.
SILENCE_S = 1.0

# The end of each partition, which is the offset of its next record, for each topic that exists.
Ends = Mapping[str, Mapping[int, int]]


class Topics:
    """The partitions and ends of topics, as a broker reports them. Thread safe."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Ask the brokers `bootstrap_servers` ("host:port"); no connection is opened yet."""
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
        self._lock = threading.Lock()
        self._partitions: Mapping[str, int] = {}
        self._learned_at = self._silent_at = float("-inf")

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, None if it isn't known; the broker isn't asked."""
        return self._partitions.get(topic)

    def learn(self, topics: Collection[str]) -> None:
        """Read the numbers of partitions of those topics for which they aren't known; they never change.

        Raises `UnavailableError` if Kafka doesn't answer.
        """
        asked_at = time.monotonic()
        if asked_at < self._learned_at + PAUSE_S or all(topic in self._partitions for topic in topics):
            return
        self._check()
        try:
            found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as error:
            raise self._silent(error) from error
        known = {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}
        with self._lock:
            self._partitions = {**self._partitions, **{name: count for name, count in known.items() if count}}
            self._learned_at = asked_at

    def ends(self, topics: Collection[str], belongs: Callable[[int], bool]) -> Ends:
        """Return the current ends of partitions for which `belongs` is true; missing topics are left out.

        Raises `UnavailableError` if Kafka doesn't answer.
        """
        self.learn(topics)
        ends: dict[str, dict[int, int]] = {topic: {} for topic in topics if topic in self._partitions}
        asked = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for topic in ends
            for partition in filter(belongs, range(self._partitions[topic]))
        }
        if asked:
            self._check()
            for position, answer in self._admin.list_offsets(asked, request_timeout=TIMEOUT_S).items():
                try:
                    ends[position.topic][position.partition] = answer.result().offset
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        self._forget(position.topic)
                    elif is_moving(error):
                        raise UnavailableError(
                            f"partition {position.partition} of {position.topic} has no leader"
                        ) from error
                    else:
                        raise self._silent(error) from error
        return {topic: found for topic, found in ends.items() if topic in self._partitions}

    def _forget(self, topic: str) -> None:
        """Forget a topic that is gone; it may be created again with other partitions."""
        with self._lock:
            self._partitions = {name: count for name, count in self._partitions.items() if name != topic}

    def _check(self) -> None:
        """Raise `UnavailableError` if the broker didn't answer a moment ago (`SILENCE_S`)."""
        if time.monotonic() < self._silent_at + SILENCE_S:
            raise UnavailableError(f"no broker answers at {self.bootstrap_servers}")

    def _silent(self, error: KafkaException) -> UnavailableError:
        self._silent_at = time.monotonic()
        return UnavailableError(f"no broker answers at {self.bootstrap_servers} ({error.args[0].str()})")
