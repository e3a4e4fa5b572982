"""Reading the newest messages of a topic, for samples of a dataset's rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.connection import consumer_config, kafka_logger
from caraway.dataplane.topics.ranges import CONFIG, SharedConsumer, messages_between
from caraway.dataplane.topics.reader import Message

# The most seconds that a read takes, or waits for another read to end.
READ_TIMEOUT_S = 10.0
# Each step of a read, going back from the ends, covers this many offsets of each partition. A message has at most 1 MB,
# so a step reads no more than this number of MB from a partition.
STEP = 32
# A read looks at no more than this many offsets of a topic. Markers of waits lie between the rows, and without the
# limit many markers could make a read go through the whole topic.
MAX_SCANNED = 4_000
READ_BATCH = 200
# A function that returns whether a message with this key is wanted.
Wanted = Callable[[bytes | None], bool]


@dataclass(slots=True)
class _Found:
    """The wanted messages so far, each with the time at which it was written, in milliseconds since the epoch."""

    wanted: Wanted
    messages: list[tuple[int, Message]] = field(default_factory=list)
    records: int = 0
    size: int = 0


class NewestReader:
    """A reader of the newest messages of topics. Thread safe; reads wait for each other."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Prepare to read from the broker "host:port"; the first read connects."""

        def opened() -> Consumer:
            config = {**CONFIG, "group.id": "caraway-samples"}
            return Consumer(consumer_config(bootstrap_servers) | config, logger=kafka_logger())

        self._consumer = SharedConsumer(opened, "rows of topics")

    def newest(self, topic: str, records: int, *, max_bytes: int, wanted: Wanted = lambda _: True) -> list[Message]:
        """Return the newest messages of a topic, newest first. Blocks.

        The messages have about the wanted number of records or bytes, or a step more, if the topic has them among
        the last `MAX_SCANNED` offsets. A topic that doesn't exist has none.

        Args:
            topic: The topic.
            records: How many records are wanted.
            max_bytes: How many bytes of keys and values are enough.
            wanted: Tells by the key of a message whether it counts.

        Raises:
            UnavailableError: Kafka doesn't answer in time.
        """
        found = _Found(wanted)
        with self._consumer.used(READ_TIMEOUT_S) as consumer:
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
        self._consumer.close()


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
    late = f"Kafka took longer than {READ_TIMEOUT_S:g} s to return rows of {topic}"
    for message in messages_between(consumer, topic, steps, batch=READ_BATCH, deadline=deadline, late=late):
        key, value = message.key(), message.value()
        if value is not None and found.wanted(key):
            place = int(message.partition() or 0), int(message.offset() or 0)
            found.messages.append((int(message.timestamp()[1]), (key, value, *place)))
            found.records += records_in(value)
            found.size += len(value) + len(key or b"")
