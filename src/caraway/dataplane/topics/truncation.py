"""The check that a topic still has the records before a follower's position, and no others in their places.

After a power failure a broker may have lost records that it had acknowledged, and a follower may be ahead of the topic.
The topic soon has as many records again; then only the epochs of leaders tell that they are other ones: each start of
a broker begins a new epoch, and a position belongs to the epoch in which the record before it was written.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, TopicPartition

from caraway.dataplane.topics.reader import COMMON, LOST_OFFSET, connect

ANSWER_S = 5.0
POLL_S = 0.1
# The consumer reads a record of each partition, which nobody needs.
CONFIG = COMMON | {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 64 * 1024,
}


@dataclass(frozen=True, slots=True)
class Position:
    """A position on a partition: the next offset, and the epoch of the leader that wrote the record before it."""

    offset: int
    epoch: int


@dataclass(slots=True)
class Checked:
    """The outcome of a check.

    Attributes:
        lost: The broker's reason for each topic that lacks records before a position.
        unanswered: The topics for which no answer came in time.
    """

    lost: dict[str, str] = field(default_factory=dict)
    unanswered: Collection[str] = ()


def check(bootstrap_servers: str, positions: Mapping[str, Mapping[int, Position]]) -> Checked:
    """Ask the brokers at "host:port" whether they have what precedes positions, by topic and partition. Blocks."""
    checked = Checked()
    waited = {(topic, partition) for topic, found in positions.items() for partition in found}
    if not waited:
        return checked
    # The consumer must not know the topics before: librdkafka compares a position with the broker's epochs when it
    # first hears of the partition's leader.
    consumer = connect(bootstrap_servers, CONFIG)
    try:
        consumer.incremental_assign(
            [
                TopicPartition(topic, partition, position.offset, leader_epoch=position.epoch)
                for topic, found in positions.items()
                for partition, position in found.items()
            ]
        )
        deadline = time.monotonic() + ANSWER_S
        while waited and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            topic, error = message.topic() or "", message.error()
            if error is not None and error.code() in LOST_OFFSET:
                checked.lost[topic] = error.str()
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                continue
            waited.discard((topic, message.partition() or 0))
    finally:
        consumer.close()
    checked.unanswered = {topic for topic, _ in waited}
    return checked
