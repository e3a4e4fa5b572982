"""Reading the records of several topics with one consumer."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import TopicMetadata

from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.connection import consumer_config, kafka_logger
from caraway.errors import UnavailableError

# A message as Kafka delivers it: key, value, partition, offset. It is a record or a block
# (`caraway.dataplane.topics.blocks`).
Message = tuple[bytes | None, bytes | None, int, int]

# A consumer reports one of these errors if a topic can't be read on from an offset: retention has removed the records
# there, the broker has lost its newest records and may have written others since, or the topic was created anew.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - their public names

# Settings of consumers that are assigned partitions.
COMMON: dict[str, Any] = {
    # librdkafka requires a group id, but the group isn't used: partitions are assigned explicitly, and each reader
    # stores its offsets together with its data.
    "group.id": "caraway",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # The milliseconds for which a broker holds a fetch request while there is no record. A partition that is assigned
    # meanwhile is read only after this request has ended, so the default of 500 ms would delay it longer.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
}

# Settings of consumers for whose records nobody waits. Each fetch costs the broker some 0.2 ms, so it waits until it
# has many records for an answer.
UNHURRIED: dict[str, Any] = COMMON | {
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 4 * 1024,
    "fetch.message.max.bytes": 1024 * 1024,
    "fetch.min.bytes": 512 * 1024,
    "fetch.wait.max.ms": 500,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read topics: the settings of the consumer, and the most records of a batch."""

    config: Mapping[str, Any]
    batch: int


# The seconds between two looks at the ends of the partitions.
ENDS_S = 0.1
METADATA_TIMEOUT_S = 5.0
# The most seconds for which the broker is asked for the end of a partition. If it doesn't answer, it is asked again at
# the next look.
END_TIMEOUT_S = 1.0
# A read fetches messages in steps. A step fetches at most this multiple of the messages that the read has so far.
GROWTH = 20


class Past(Protocol):
    """The messages of a topic that the broker may not have any more."""

    def read(self, positions: Mapping[int, int], records: int) -> tuple[list[Message], Mapping[int, int]]:
        """Return the next messages from some offsets on, with the offsets behind them; the same offsets at the end.

        The last message of a partition has the offset before the one behind it.

        Args:
            positions: The next offset of each partition.
            records: About how many records to return.

        Raises `UnavailableError` if they can't be read now.
        """
        ...


@dataclass(slots=True)
class Taken:
    """The outcome of a read.

    Attributes:
        messages: The messages by topic, those of a partition in order.
        errors: The errors with their topics.
        waiting: Why topics aren't read for now: what precedes their beginnings isn't there. They are stopped.
    """

    messages: dict[str, list[Message]] = field(default_factory=dict)
    errors: list[tuple[str | None, KafkaError]] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)


class TopicReader:
    """A reader of the partitions that it is given. Only one thread may use it; `ends` may be called by others."""

    def __init__(self, bootstrap_servers: str, reading: Reading) -> None:
        """Prepare to read from the broker "host:port"; the first use connects."""
        self._bootstrap_servers = bootstrap_servers
        self._reading = reading
        self._consumer: Consumer | None = None
        # The offset behind the last record that was read, by topic and partition.
        self._positions: dict[str, dict[int, int]] = {}
        # The epoch of the leader that wrote the record before the position, by topic and partition, where it is known.
        self._epochs: dict[str, dict[int, int]] = {}
        # Only the reading thread asks the consumer for the ends of partitions: another thread would wait forever for
        # the consumer's lock, because the polling thread takes it again at once.
        self._ends: dict[str, dict[int, int]] = {}
        self._ends_at = 0.0
        # The topics that are read from their pasts, until they can be read from the broker.
        self._pasts: dict[str, Past] = {}

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return the broker's topics. Raises `KafkaException` if it doesn't answer in time."""
        found: Mapping[str, TopicMetadata] = self._connected().list_topics(timeout=METADATA_TIMEOUT_S).topics
        return found

    def positions(self, topic: str) -> Mapping[int, int] | None:
        """Return the offset behind the last record read of each partition; None if the topic isn't read."""
        return self._positions.get(topic)

    def epochs(self, topic: str) -> Mapping[int, int]:
        """Return the epoch of the leader that wrote the last record read of each partition, where it is known."""
        return self._epochs.get(topic, {})

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the last known end of each partition of a topic; partitions without a known end are missing."""
        return self._ends.get(topic, {})

    def lag(self, topic: str) -> int | None:
        """Return how many messages of a topic weren't read yet.

        It is None if the topic isn't read, or is still read from its past, or if its ends are unknown.
        """
        positions, ends = self._positions.get(topic), self.ends(topic)
        if positions is None or topic in self._pasts or not positions.keys() <= ends.keys():
            return None
        return sum(max(0, ends[partition] - offset) for partition, offset in positions.items())

    def start(self, topic: str, offsets: Mapping[int, int], past: Past | None = None) -> None:
        """Read a topic from these offsets of its partitions on, also if it is read already.

        Messages that the broker doesn't have any more are read from the `past`, if there is one.
        """
        self.stop(topic)
        self._positions[topic] = dict(offsets)
        self._epochs[topic] = {}
        # The ends are looked at before the next read, so that the lag is known soon.
        self._ends_at = 0.0
        if past is None:
            self._assign(topic)
        else:
            self._pasts[topic] = past

    def begins_behind(self, topic: str, offsets: Mapping[int, int]) -> bool:
        """Return whether the broker doesn't have all messages from these offsets on any more.

        Raises `KafkaException` if it doesn't answer in time.
        """
        return any(self._beginning(topic, partition) > offset for partition, offset in offsets.items())

    def stop(self, topic: str) -> None:
        """Stop reading a topic, if it is read."""
        positions = self._positions.pop(topic, None)
        self._ends.pop(topic, None)
        self._epochs.pop(topic, None)
        if self._pasts.pop(topic, None) is None and positions is not None:
            self._connected().incremental_unassign([TopicPartition(topic, p) for p in positions])

    def read(self, timeout_s: float) -> Taken:
        """Return the next messages, none if there are none within the time. They have about a batch of records."""
        consumer = self._connected()
        taken = self._read_pasts()
        if taken.messages or taken.waiting:
            self._note_ends(consumer)
            return taken
        first = consumer.poll(timeout_s)
        self._note_ends(consumer)
        if first is None:
            return taken
        # A message may be a block of many records. So one message is read first, and the average number of records in
        # the messages so far determines how many further ones are read.
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

    def _assign(self, topic: str) -> None:
        positions = self._positions[topic]
        self._connected().incremental_assign([TopicPartition(topic, p, offset) for p, offset in positions.items()])

    def _beginning(self, topic: str, partition: int) -> int:
        first, _ = self._connected().get_watermark_offsets(TopicPartition(topic, partition), timeout=END_TIMEOUT_S)
        return int(first)

    def _read_pasts(self) -> Taken:
        """Return the next messages of topics that are read from their pasts; assign those that have reached the broker.

        Other topics wait for a read of a past as for a large batch.
        """
        taken = Taken()
        for topic, past in list(self._pasts.items()):
            positions = self._positions[topic]
            try:
                if not self.begins_behind(topic, positions):
                    del self._pasts[topic]
                    self._assign(topic)
                    continue
                messages, reached = past.read(positions, self._reading.batch)
            except (KafkaException, UnavailableError) as error:
                self._wait(topic, str(error), taken)
                continue
            if reached == positions:
                self._wait(topic, "it begins later than what is to be read, and the archive has nothing more", taken)
                continue
            self._positions[topic], self._epochs[topic] = dict(reached), {}
            taken.messages[topic] = messages
        return taken

    def _wait(self, topic: str, reason: str, taken: Taken) -> None:
        self.stop(topic)
        taken.waiting[topic] = reason

    def _sorted(self, messages: list[KafkaMessage]) -> Taken:
        taken = Taken()
        for message in messages:
            topic, error = message.topic(), message.error()
            if error is not None:
                taken.errors.append((topic, error))
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            if (epoch := message.leader_epoch()) is not None and topic in self._epochs:
                self._epochs[topic][partition] = epoch
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
                    # From here on the broker is assumed to be away. Otherwise this thread would wait for each further
                    # partition as well, and the indexes would get no records meanwhile.
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
        # The broker is asked only the first time. At that time the end that the consumer has cached may be from an
        # earlier reading of the partition, and an index that has records to read would seem to have caught up.
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


def connected(bootstrap_servers: str, config: Mapping[str, Any]) -> Consumer:
    """Return a consumer without any assignment that knows all topics, for somebody who waits for what it reads.

    If librdkafka doesn't know the leaders of partitions when they are assigned, it often asks for them only a second
    later.

    Raises `UnavailableError` if the broker doesn't answer.
    """
    consumer = connect(bootstrap_servers, config)
    try:
        consumer.list_topics(timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        consumer.close()
        raise UnavailableError(f"no Kafka broker answers at {bootstrap_servers}: {error}") from error
    return consumer
