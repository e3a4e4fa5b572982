"""Reading the records of several topics, so that a topic with a backlog doesn't delay those of the others.

A consumer of Kafka has one queue for all of its topics: a fresh record comes behind all records that the consumer has
read ahead. So there are two consumers. One reads the fresh topics, and reads little ahead. When a topic falls behind,
it moves to the other consumer, which reads far ahead, until the topic has caught up. Each read returns the fresh
records first, and then so many of the backlog as are applied in `SLICE_SECONDS`. A fresh record therefore waits for one
slice, however large the backlog is.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import TopicMetadata

from caraway.index.feeding.consumption import BACKLOG, FRESH, connect
from caraway.index.feeding.writer import Message

# The most fresh records of a read. 500 of one index are applied in some 10 ms.
FRESH_BATCH = 500
# A topic moves to the consumer of backlogs when more records than `BEHIND` wait on it, and back when at most
# `CAUGHT_UP` do. The numbers differ, because a move costs a few fetches: a topic with a steady high rate shouldn't move
# to and fro.
BEHIND, CAUGHT_UP = 2000, 500
# The seconds in which a slice of a backlog should be applied, and the bounds of its number of records. A large slice is
# faster for each record: keys repeat in it, and each tile is changed only once.
SLICE_SECONDS = 0.04
LEAST_SLICE, MOST_SLICE = 200, 4000
# The seconds between two looks at the ends of the partitions.
ENDS_S = 0.1
# The seconds for which a read waits for the backlog's consumer, if neither consumer has a record at once.
BACKLOG_POLL_S = 0.005
METADATA_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Taken:
    """The records of a read by topic, in order, those of the fresh topics first; and errors with their topics."""

    records: dict[str, list[Message]] = field(default_factory=dict)
    errors: list[tuple[str | None, KafkaError]] = field(default_factory=list)


class TopicReader:
    """A reader of the partitions that it is given. Only one thread may use it; `ends` may be called by others."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Prepare to read from the broker "host:port"; the first use connects."""
        self._bootstrap_servers = bootstrap_servers
        self._fresh: Consumer | None = None
        self._backlog: Consumer | None = None
        self._behind: set[str] = set()
        # The offset behind the last record that was read, by topic and partition.
        self._positions: dict[str, dict[int, int]] = {}
        # Only the reading thread asks the consumers for the ends of partitions: another thread would wait forever for
        # a consumer's lock, because the polling thread takes it again at once.
        self._ends: dict[str, dict[int, int]] = {}
        self._ends_at = 0.0
        self._slice = LEAST_SLICE
        self._sliced: tuple[int, float] | None = None

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return the broker's topics. Raises `KafkaException` if it doesn't answer in time."""
        found: Mapping[str, TopicMetadata] = self._fresh_consumer().list_topics(timeout=METADATA_TIMEOUT_S).topics
        return found

    def positions(self, topic: str) -> Mapping[int, int] | None:
        """Return the offset behind the last record read of each partition; None if the topic isn't read."""
        return self._positions.get(topic)

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the last known end of each partition of a topic; partitions without a known end are missing."""
        return self._ends.get(topic, {})

    def start(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Read a topic from these offsets of its partitions on, also if it is read already."""
        self.stop(topic)
        self._positions[topic] = dict(offsets)
        self._assign(self._fresh_consumer(), topic)

    def stop(self, topic: str) -> None:
        """Stop reading a topic, if it is read."""
        if topic in self._positions:
            self._unassign(topic)
            self._behind.discard(topic)
            del self._positions[topic]

    def read(self, timeout_s: float) -> Taken:
        """Return the next records, none if there are none within the time."""
        self._note_ends()
        fresh = self._fresh_consumer()
        if self._backlog is None or not self._behind:
            first = fresh.poll(timeout_s)
            self._sliced = None
            return self._sorted([] if first is None else [first, *fresh.consume(FRESH_BATCH - 1, 0)])
        self._resize()
        messages = fresh.consume(FRESH_BATCH, 0)
        messages += self._backlog.consume(self._slice, 0 if messages else BACKLOG_POLL_S)
        self._sliced = len(messages), time.monotonic()
        return self._sorted(messages)

    def close(self) -> None:
        """Close the connections."""
        for consumer in (self._fresh, self._backlog):
            if consumer is not None:
                consumer.close()
        self._fresh = self._backlog = None

    def _sorted(self, messages: list[KafkaMessage]) -> Taken:
        taken = Taken()
        for message in messages:
            topic, error = message.topic(), message.error()
            if error is not None:
                taken.errors.append((topic, error))
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            taken.records.setdefault(topic or "", []).append((message.key(), message.value(), partition, offset))
        for topic, records in taken.records.items():
            positions = self._positions.get(topic)
            if positions is not None:
                for _, _, partition, offset in records:
                    positions[partition] = offset + 1
        return taken

    def _resize(self) -> None:
        """Adapt the size of slices to the time that passed since the last read, in which its records were applied."""
        if self._sliced is None:
            return
        count, read_at = self._sliced
        seconds = time.monotonic() - read_at
        if seconds > SLICE_SECONDS:
            self._slice = max(LEAST_SLICE, min(self._slice, int(count * SLICE_SECONDS / seconds)))
        elif count >= self._slice:
            self._slice = min(MOST_SLICE, self._slice * 5 // 4)

    def _note_ends(self) -> None:
        """Look at the ends of the partitions now and then, and move topics that fell behind or have caught up."""
        if time.monotonic() < self._ends_at + ENDS_S:
            return
        self._ends_at = time.monotonic()
        # A consumer knows no end of a partition before its first fetch, so after a move the earlier end is kept until
        # then.
        ends = {topic: dict(self._ends.get(topic, {})) for topic in self._positions}
        for topic, positions in self._positions.items():
            consumer = self._consumer_of(topic)
            for partition in positions:
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
                if end >= 0:
                    ends[topic][partition] = end
        self._ends = ends
        for topic, positions in self._positions.items():
            lag = sum(max(0, end - positions[partition]) for partition, end in ends[topic].items())
            self._move(topic, behind=lag > (CAUGHT_UP if topic in self._behind else BEHIND))

    def _move(self, topic: str, *, behind: bool) -> None:
        """Have the other consumer read a topic, if it doesn't do so already."""
        if behind == (topic in self._behind):
            return
        self._unassign(topic)
        (self._behind.add if behind else self._behind.discard)(topic)
        self._assign(self._consumer_of(topic), topic)

    def _assign(self, consumer: Consumer, topic: str) -> None:
        consumer.incremental_assign([TopicPartition(topic, p, offset) for p, offset in self._positions[topic].items()])

    def _unassign(self, topic: str) -> None:
        self._consumer_of(topic).incremental_unassign([TopicPartition(topic, p) for p in self._positions[topic]])

    def _consumer_of(self, topic: str) -> Consumer:
        if topic not in self._behind:
            return self._fresh_consumer()
        if self._backlog is None:
            self._backlog = connect(self._bootstrap_servers, BACKLOG)
        return self._backlog

    def _fresh_consumer(self) -> Consumer:
        if self._fresh is None:
            self._fresh = connect(self._bootstrap_servers, FRESH)
        return self._fresh
