"""Reading the records of several topics with one consumer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import TopicMetadata

from caraway.topics.blocks import records_in
from caraway.topics.connection import consumer_config, kafka_logger

# A message as Kafka delivers it: key, value, partition, offset. It is a record or a block (`caraway.topics.blocks`).
Message = tuple[bytes | None, bytes | None, int, int]

# The codes of a consumer's errors if the topic doesn't have the offset from which it is read: it was deleted by
# retention, or the topic was created anew.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

# Settings of consumers that are assigned partitions.
COMMON: dict[str, Any] = {
    # librdkafka requires a group id, but the group isn't used: partitions are assigned explicitly, and whoever
    # reads keeps the offsets together with the data.
    "group.id": "caraway",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # The milliseconds for which a broker holds a fetch request while there is no record. A partition that is assigned
    # meanwhile is read only after this request has ended, so the default of 500 ms would delay it longer.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read topics: the settings of the consumer, and the most records of a batch."""

    config: Mapping[str, Any]
    batch: int


# The seconds between two looks at the ends of the partitions.
ENDS_S = 0.1
METADATA_TIMEOUT_S = 5.0
# The most seconds for which the broker is asked for the end of a partition. If it doesn't answer, the next look asks.
END_TIMEOUT_S = 1.0
# So many times as many messages as were taken before are taken next in a read.
GROWTH = 20


@dataclass(slots=True)
class Taken:
    """The messages of a read by topic, in order, and errors with their topics."""

    messages: dict[str, list[Message]] = field(default_factory=dict)
    errors: list[tuple[str | None, KafkaError]] = field(default_factory=list)


class TopicReader:
    """A reader of the partitions that it is given. Only one thread may use it; `ends` may be called by others."""

    def __init__(self, bootstrap_servers: str, reading: Reading) -> None:
        """Prepare to read from the broker "host:port"; the first use connects."""
        self._bootstrap_servers = bootstrap_servers
        self._reading = reading
        self._consumer: Consumer | None = None
        # The offset behind the last record that was read, by topic and partition.
        self._positions: dict[str, dict[int, int]] = {}
        # Only the reading thread asks the consumer for the ends of partitions: another thread would wait forever for
        # the consumer's lock, because the polling thread takes it again at once.
        self._ends: dict[str, dict[int, int]] = {}
        self._ends_at = 0.0

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return the broker's topics. Raises `KafkaException` if it doesn't answer in time."""
        found: Mapping[str, TopicMetadata] = self._connected().list_topics(timeout=METADATA_TIMEOUT_S).topics
        return found

    def positions(self, topic: str) -> Mapping[int, int] | None:
        """Return the offset behind the last record read of each partition; None if the topic isn't read."""
        return self._positions.get(topic)

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the last known end of each partition of a topic; partitions without a known end are missing."""
        return self._ends.get(topic, {})

    def lag(self, topic: str) -> int | None:
        """Return how many messages of a topic weren't read yet; None if it isn't read, or its ends are unknown."""
        positions, ends = self._positions.get(topic), self.ends(topic)
        if positions is None or not positions.keys() <= ends.keys():
            return None
        return sum(max(0, ends[partition] - offset) for partition, offset in positions.items())

    def start(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Read a topic from these offsets of its partitions on, also if it is read already."""
        self.stop(topic)
        self._connected().incremental_assign([TopicPartition(topic, p, offset) for p, offset in offsets.items()])
        self._positions[topic] = dict(offsets)
        # The ends are looked at before the next read, so that the lag is known soon.
        self._ends_at = 0.0

    def stop(self, topic: str) -> None:
        """Stop reading a topic, if it is read."""
        positions = self._positions.pop(topic, None)
        self._ends.pop(topic, None)
        if positions is not None:
            self._connected().incremental_unassign([TopicPartition(topic, p) for p in positions])

    def read(self, timeout_s: float) -> Taken:
        """Return the next messages, none if there are none within the time. They have about a batch of records."""
        consumer = self._connected()
        first = consumer.poll(timeout_s)
        self._note_ends(consumer)
        if first is None:
            return Taken()
        # A message may be a block of many records. So a few messages are taken at first, and further ones by the number
        # of records in them.
        messages, records, batch = [first], records_in(first.value()), self._reading.batch
        while records < batch:
            wanted = min(GROWTH * len(messages), (batch - records) * len(messages) // records + 1)
            more = consumer.consume(wanted, 0)
            messages += more
            records += sum(records_in(message.value()) for message in more)
            if len(more) < wanted:
                break
        return self._sorted(messages)

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _sorted(self, messages: list[KafkaMessage]) -> Taken:
        taken = Taken()
        for message in messages:
            topic, error = message.topic(), message.error()
            if error is not None:
                taken.errors.append((topic, error))
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            taken.messages.setdefault(topic or "", []).append((message.key(), message.value(), partition, offset))
        for topic, found in taken.messages.items():
            positions = self._positions.get(topic)
            if positions is not None:
                for _, _, partition, offset in found:
                    positions[partition] = offset + 1
        return taken

    def _note_ends(self, consumer: Consumer) -> None:
        if time.monotonic() < self._ends_at + ENDS_S:
            return
        self._ends_at = time.monotonic()
        ends: dict[str, dict[int, int]] = {topic: {} for topic in self._positions}
        answers = True
        for topic, positions in self._positions.items():
            for partition in positions:
                known = self._ends.get(topic, {}).get(partition)
                if known is None and not answers:
                    continue
                found = self._end(consumer, TopicPartition(topic, partition), known)
                if found is None:
                    # A broker that is away would be waited for once for each partition, and the indexes meanwhile.
                    answers = False
                else:
                    ends[topic][partition] = found
        self._ends = ends

    @staticmethod
    def _end(consumer: Consumer, partition: TopicPartition, known: int | None) -> int | None:
        """Return the end of a partition, None if the broker doesn't answer; `known` is its last known end."""
        if known is not None:
            _, end = consumer.get_watermark_offsets(partition, cached=True)
            return max(known, end)
        # The broker is asked at first. If this consumer has read the partition before, it still has the end of that
        # time: with it, an index that has records to read would seem to have caught up.
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=END_TIMEOUT_S)
        except KafkaException:
            return None
        return int(end)

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = connect(self._bootstrap_servers, self._reading.config)
        return self._consumer


def connect(bootstrap_servers: str, config: Mapping[str, Any]) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(consumer_config(bootstrap_servers) | dict(config), logger=kafka_logger())
