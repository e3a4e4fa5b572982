"""The records in messages, for tests that read topics."""

from confluent_kafka import Message

from caraway.topics.blocks import is_block, split
from caraway.topics.identity import position_ids


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
