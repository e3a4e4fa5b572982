"""The reader of Kafka topics."""

import time
from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import TopicMetadata

from caraway.dataplane.addresses.reach import check_brokers
from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.dataplane.sources.reader import (
    Items,
    Position,
    Progress,
    SourceBatch,
    SourceContext,
    SourceRecord,
    batch_of,
    is_ahead,
)
from caraway.dataplane.topics.connection import CONSUMER, kafka_logger
from caraway.dataplane.topics.external import REMEDIES, external_settings, place_of, text_of
from caraway.errors import UnavailableError
from caraway.graph.connectors import KafkaConnector
from caraway.graph.systems import KafkaSystem

# The seconds for which an answer of the broker, or the records of a sample, are awaited.
ANSWER_TIMEOUT_S = 10.0
# The seconds of each attempt to look up a topic's partitions, in all `ANSWER_TIMEOUT_S`. The first ones are short, so
# that a refused connection is noticed early.
LOOKS_S = (0.5, 1.5, ANSWER_TIMEOUT_S - 2.0)
# The seconds between two look-ups of the topic's partitions, since partitions may be added.
PARTITIONS_INTERVAL_S = 30.0
# The most kB of records that librdkafka fetches ahead of the reader and keeps in memory, for each source.
BUFFER_KB = 16 * 1024
# The most records that are consumed at once. The size of a batch is checked only in between, so a batch can exceed its
# size by these records, which fit the buffer of librdkafka.
CHUNK = 500
# The seconds of one poll for a sample of the topic.
PEEK_S = 0.2
# librdkafka's error for a lost connection to one broker, which it opens again by itself, so the reader ignores it. If
# all brokers are gone, librdkafka reports another error, which isn't ignored.
LOST = KafkaError._TRANSPORT  # noqa: SLF001 (the library names it so)
ALL_LOST = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001


class KafkaReader:
    """Reads all partitions of a topic (`SourceReader`).

    The position is the next offset of each partition. It is copied to a consumer group, for people.
    """

    reads_ahead = True

    def __init__(self, connector: KafkaConnector, context: SourceContext) -> None:
        """Prepare to read.

        Raises:
            UnknownEntityError: A secret doesn't exist.
            UnavailableError: A secret can't be looked up, or librdkafka refuses the settings.
        """
        system = connector.system
        assert isinstance(system, KafkaSystem)  # noqa: S101 (the planner refuses others)
        self._topic = connector.topic
        self._where = place_of(system)
        config: dict[str, object] = {
            **CONSUMER,
            **external_settings(system, context.resolve, context.ca_file),
            "group.id": f"caraway-{context.name}",
            "enable.auto.commit": False,
            # If retention has deleted the next record before it was read, reading goes on with the oldest record that
            # is left.
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": BUFFER_KB,
            "fetch.message.max.bytes": BUFFER_KB * 1024 // 4,
            "error_cb": self._note,
        }
        self._decoder = decoder_of(connector.format, context.resolve, ca_file=context.ca_file)
        try:
            check_brokers(system.bootstrap_servers)
            self._consumer = Consumer(config, logger=kafka_logger())
        except KafkaException as error:
            raise UnavailableError(f"{self._where}: {text_of(error)}") from None
        self._error, self._is_refused = "", False
        self._positions: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._looked_at = 0.0
        self._idle_at: float | None = None
        # A message that came while the partitions were looked up, and begins the next batch.
        self._kept: Message | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Go on from these offsets; see `SourceReader.seek`."""
        del items
        self._positions = {int(partition): offset for partition, offset in position.items()}
        self._look()
        self._assign()
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return the next records; see `SourceReader.poll`."""
        if time.monotonic() > self._looked_at + PARTITIONS_INTERVAL_S:
            known = self._partitions
            self._look()
            if new := sorted(self._partitions - known):
                self._consumer.incremental_assign([self._from(partition) for partition in new])
        begun = time.monotonic()
        found = self._records(rows, size, timeout_s)
        if not found:
            self._idle_at = begun if self.lag() == 0 else None
            return None
        self._idle_at = None
        return batch_of(found, self._decoder.decode, self._position())

    def is_ahead(self, mark: str) -> bool:
        """Return whether a mark belongs to a record that isn't read yet."""
        return is_ahead(mark, self._position())

    def acknowledge(self, position: Position) -> None:
        """Commit the offsets to the consumer group, by which Kafka's own tools show the lag."""
        offsets = [TopicPartition(self._topic, int(partition), offset) for partition, offset in position.items()]
        # Reading doesn't depend on the group: its offsets only show people the lag, and the real positions are in
        # Postgres. So it doesn't matter if the user may not commit to the group.
        with suppress(KafkaException):
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def lag(self) -> int | None:
        """Return how many records aren't read yet, by the ends that came with the last records."""
        total = 0
        for partition in self._partitions:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
            except KafkaException:
                return None
            if high < 0:
                return None
            total += max(0, high - max(low, self._positions.get(partition, 0)))
        return total

    def idle_at(self) -> float | None:
        """Return when a poll last found nothing although all partitions were read to their ends."""
        return self._idle_at

    def progress(self) -> Progress | None:
        """Return nothing: a topic has no end."""
        return None

    def peek(self, rows: int) -> SourceBatch:
        """Return the last records of all partitions."""
        self._look()
        last = max(1, rows // len(self._partitions))
        for partition in self._partitions:
            low, high = self._watermarks(partition)
            self._positions[partition] = max(low, high - last)
        self._assign()
        found: list[SourceRecord] = []
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.lag() != 0 and len(found) < rows and time.monotonic() < deadline:
            found += self._records(rows - len(found), BUFFER_KB * 1024, PEEK_S)
        return batch_of(found, self._decoder.decode, self._position())

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()
        self._decoder.close()

    def _records(self, rows: int, size: int, timeout_s: float) -> list[SourceRecord]:
        """Return the next records. Only the first one is waited for; those that were fetched by then come with it."""
        self._error = ""
        found: list[SourceRecord] = []
        first, self._kept = self._kept, None
        # A message without a value counts as false, so it is compared with None.
        if first is None:
            first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first]
        while messages:
            records = self._read(messages)
            found += records
            size -= sum(len(value or b"") for _, _, value in records)
            if len(found) >= rows or size <= 0:
                break
            messages = self._consumer.consume(min(CHUNK, rows - len(found)), 0)
        if not found and self._error:
            raise UnavailableError(f"{self._where}: {self._error}")
        return found

    def _position(self) -> dict[str, int]:
        return {str(partition): offset for partition, offset in self._positions.items()}

    def _watermarks(self, partition: int) -> tuple[int, int]:
        try:
            at = TopicPartition(self._topic, partition)
            return self._consumer.get_watermark_offsets(at, timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise UnavailableError(f"{self._where}: {self._error or text_of(error)}") from None

    def _look(self) -> None:
        """Read which partitions the topic has.

        Raises:
            UnavailableError: No broker answers, or there is no such topic.
        """
        topic = self._topic_metadata()
        if topic.error is not None or not topic.partitions:
            raise UnavailableError(f"{self._where}: topic {self._topic}: {topic.error}")
        self._partitions = frozenset(topic.partitions)
        self._names = {partition: str(partition) for partition in topic.partitions}
        self._looked_at = time.monotonic()

    def _topic_metadata(self) -> TopicMetadata:
        self._error, self._is_refused = "", False
        for timeout_s in LOOKS_S:
            try:
                topics: dict[str, TopicMetadata] = self._consumer.list_topics(self._topic, timeout=timeout_s).topics
                return topics[self._topic]
            except KafkaException as error:
                failure = error
            # `poll` calls `_note` with the reason why no broker answered. If the reason won't pass, waiting longer
            # doesn't help. `poll` also returns a record if one was fetched before, and wouldn't return it again.
            if self._kept is None:
                self._kept = self._consumer.poll(0)
            if self._is_refused:
                break
        raise UnavailableError(f"{self._where}: {self._error or text_of(failure)}") from None

    def _assign(self) -> None:
        """Read all partitions from their positions on; a kept message comes again if it is behind them."""
        self._kept = None
        self._consumer.assign([self._from(partition) for partition in self._partitions])

    def _from(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition, self._positions.setdefault(partition, 0))

    def _read(self, messages: Sequence[Message]) -> list[SourceRecord]:
        """Return the records of messages, and move the positions behind them."""
        if errors := [error for message in messages if (error := message.error()) is not None]:
            if failure := next((error for error in errors if error.code() != LOST), None):
                raise UnavailableError(f"{self._where}: {failure.str()}")
            messages = [message for message in messages if message.error() is None]
        names, make = self._names, tuple.__new__
        # A record is made for each row, and this takes half of the time of calling the class.
        records = [make(SourceRecord, (names[m.partition()], m.offset(), m.value())) for m in messages]  # type: ignore[index]
        self._positions |= {int(partition): offset + 1 for partition, offset, _ in records}
        return records

    def _note(self, error: KafkaError) -> None:
        """Note an error of all connections, which explains why nothing comes."""
        if error.code() == LOST:
            return
        # A wrong password or an unknown authority is reported first, and then that no broker can be reached. The first
        # error stays, since it is the reason.
        if error.code() != ALL_LOST or not self._error:
            self._error = error.str() + REMEDIES.get(error.code(), "")
            self._is_refused = error.code() in REMEDIES
