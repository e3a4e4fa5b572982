"""The records in messages, for tests that read topics."""

from confluent_kafka import Consumer, Message, TopicPartition

from caraway.dataplane.topics.blocks import is_block, split
from caraway.dataplane.topics.identity import position_ids
from caraway.dataplane.topics.ranges import messages_between
from tests.timeouts import deadline_in

READ_S = 60.0


def records_of(key: bytes | None, value: bytes | None) -> list[bytes]:
    """Return the values of the records of a message: several of a block."""
    if key is None and value is not None and is_block(value):
        return split(value)
    return [value or b""]


def positions_of(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the values of the records of a message, each after the identity of its position."""
    offset, partition = message.offset() or 0, message.partition() or 0
    values = records_of(message.key(), message.value())
    return list(zip(position_ids(offset, partition, len(values)), values, strict=True))


def ends_of(consumer: Consumer, topic: str) -> dict[int, int]:
    """Return the end of each partition of a topic. The consumer isn't assigned any yet."""
    partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
    return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=READ_S)[1] for p in partitions}


def messages_on(consumer: Consumer, topic: str) -> list[Message]:
    """Return the messages that are on a topic now, in the order of each partition; none that come meanwhile."""
    ranges = {partition: (0, end) for partition, end in ends_of(consumer, topic).items() if end}
    late = f"the messages of {topic} didn't come in time"
    return list(messages_between(consumer, topic, ranges, batch=10_000, deadline=deadline_in(READ_S), late=late))
