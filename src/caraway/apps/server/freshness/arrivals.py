"""The arrivals of heartbeats' markers on the outputs of jobs."""

import threading
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from caraway.apps.server.waiting.goals import Goal
from caraway.apps.server.waiting.markers import Seen
from caraway.dataplane.index.feeding.consumption import FRESH
from caraway.dataplane.topics.markers import ARRIVAL_KEY, decode_arrival
from caraway.dataplane.topics.reader import Message, connected

# The most messages that one poll of `OutputReader` returns.
BATCH = 5_000


class Arrivals:
    """The arrivals of the markers that are expected, from all threads that read outputs of jobs. Thread safe."""

    def __init__(self) -> None:
        """Expect nothing yet."""
        self._lock = threading.Lock()
        self._expected: frozenset[bytes] = frozenset()
        self._seen: dict[tuple[bytes, bytes], Seen] = {}

    def expect(self, token: bytes) -> None:
        """Note the arrivals of a marker from now on; called before the marker is written."""
        with self._lock:
            self._expected |= {token}

    def keep(self, tokens: Collection[bytes]) -> None:
        """Forget all markers but these."""
        with self._lock:
            self._expected = frozenset(tokens)
            self._seen = {key: seen for key, seen in self._seen.items() if key[0] in self._expected}

    def note(self, topic: str, messages: Sequence[Message]) -> None:
        """Note arrivals that were read from a topic; those of other markers are passed over."""
        del topic
        for _, value, partition, offset in messages:
            arrival = decode_arrival(value or b"")
            if arrival is not None and arrival.token in self._expected:
                with self._lock:
                    if arrival.token in self._expected:
                        self._seen.setdefault((arrival.token, arrival.job), Seen()).add(arrival, partition, offset)

    def goal(self, token: bytes, job: bytes, sources: int, partitions: int) -> Goal | None:
        """Return the position behind all arrivals of a marker that went through a job; None while some are missing.

        Args:
            token: The marker.
            job: The tag of the job (`caraway.dataplane.topics.markers.job_tag`).
            sources: The number of partitions to which the marker was written.
            partitions: The number of partitions of the job's output.
        """
        with self._lock:
            seen = self._seen.get((token, job))
            return None if seen is None or not partitions else seen.goal(sources, partitions)


class OutputReader:
    """Reads the outputs of jobs that no index of this server reads, while a marker is expected there.

    It reads from the positions at which a topic ended before the marker was written. Not thread safe.
    """

    def __init__(self, bootstrap_servers: str, arrivals: Arrivals) -> None:
        """Note what is found in `arrivals`; the broker "host:port" is connected to when there is something to read."""
        self._bootstrap_servers = bootstrap_servers
        self._arrivals = arrivals
        self._consumer: Consumer | None = None
        self._read: dict[str, Goal] = {}

    def follow(self, topics: Mapping[str, Goal]) -> None:
        """Read these topics and no others; those that aren't read yet from these offsets on."""
        if self._consumer is None:
            if not topics:
                return
            self._consumer = connected(self._bootstrap_servers, FRESH.config)
        gone = self._read.keys() - topics.keys()
        if gone:
            self._consumer.incremental_unassign([TopicPartition(t, p) for t in gone for p in self._read.pop(t)])
        new = topics.keys() - self._read.keys()
        if new:
            self._consumer.incremental_assign(
                [
                    TopicPartition(topic, partition, offset)
                    for topic in new
                    for partition, offset in topics[topic].items()
                ]
            )
            self._read |= {topic: topics[topic] for topic in new}

    def poll(self) -> None:
        """Note the arrivals among the messages that are there."""
        if self._consumer is None or not self._read:
            return
        full = True
        while full:
            messages = self._consumer.consume(BATCH, 0)
            full = len(messages) == BATCH
            found = [
                (message.key(), message.value(), message.partition() or 0, message.offset() or 0)
                for message in messages
                if message.error() is None and message.key() == ARRIVAL_KEY
            ]
            self._arrivals.note("", found)

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
