"""The check that a topic still has the records before a follower's position, and no others in their places.

After a power failure a broker may have lost records that it had acknowledged, and a follower may be ahead of the topic.
The topic soon has as many records again; then only the epochs of leaders tell that they are other ones: each start of
a broker begins a new epoch, and a position belongs to the epoch in which the record before it was written.
"""

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, TopicPartition

from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.reader import COMMON, LOST_OFFSET, connect
from caraway.errors import UnavailableError

ANSWER_S = 5.0
POLL_S = 0.1
# The consumer that makes the check may also read records of the partitions. Nobody needs them, so it fetches as few as
# it can.
CONFIG = COMMON | {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 64 * 1024,
}
# The part of librdkafka's message with the offset at which a partition's records of an epoch now end; librdkafka gives
# it in no other form.
_END = re.compile(r"broker end offset is (\d+)")
SEND_AGAIN = (
    "Its broker has lost acknowledged records, as by a power failure. Send again what was logged before the failure "
    "(docs/operate/operations.md, After a power failure)"
)
IF_FAILED = (
    "Its broker may have lost acknowledged records, or only the leader of a partition has changed. If a broker has "
    "failed, send again what was logged before the failure (docs/operate/operations.md, After a power failure)"
)


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
        ends: The offset from which on a partition lacks records, by topic and partition, where the broker knows it.
        unanswered: The topics for which no answer came in time.
    """

    lost: dict[str, str] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    unanswered: Collection[str] = ()


def check(bootstrap_servers: str, positions: Mapping[str, Mapping[int, Position]]) -> Checked:
    """Ask the brokers at "host:port" whether they have what precedes positions, by topic and partition. Blocks."""
    checked = Checked()
    waited = {(topic, partition) for topic, found in positions.items() for partition in found}
    if not waited:
        return checked
    # A new consumer is used, which doesn't know the topics yet: librdkafka compares a position with the broker's epochs
    # only when it first learns of the partition's leader.
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
                if (end := _END.search(error.str())) is not None:
                    checked.ends.setdefault(topic, {})[message.partition() or 0] = int(end[1])
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                continue
            waited.discard((topic, message.partition() or 0))
    finally:
        consumer.close()
    checked.unanswered = {topic for topic, _ in waited}
    return checked


@dataclass(frozen=True, slots=True)
class Continuation:
    """The place at which a follower of a topic can go on.

    Attributes:
        topic: The topic.
        reached: The position of the follower, by partition.
        offsets: The offset of each partition at which it can go on: its position, or the first record that is lost.
    """

    topic: str
    reached: Mapping[int, int]
    offsets: Mapping[int, int]

    @property
    def lost(self) -> dict[int, int]:
        """The offsets from which on the topic lacks records that the follower has read, by partition."""
        return {p: offset for p, offset in self.offsets.items() if offset < self.reached.get(p, 0)}

    def told(self, follower: str, consequence: str, *, certain: bool = True) -> str:
        """Return the loss as a text for the operator.

        Args:
            follower: The follower in words, such as "the archive".
            consequence: A sentence about what the follower does now, without its full stop.
            certain: False if the follower doesn't know the epochs up to its position, so that perhaps nothing is lost.
        """
        places = ", ".join(f"{p}@{offset} to {self.reached[p]}" for p, offset in sorted(self.lost.items()))
        lacks, remedy = ("lacks", SEND_AGAIN) if certain else ("may lack", IF_FAILED)
        return f"topic {self.topic} {lacks} records that {follower} had read ({places}). {consequence}. {remedy}"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a follower has read a topic.

    Attributes:
        offsets: The next offset of each partition.
        epochs: The epochs in which the records before these offsets were written, where they are known. Without one, a
            loss is only noticed if the position is beyond the end of the topic.
        positions_of_epochs: The offsets to which the epochs belong, where these are less than `offsets`: records behind
            them may be of a later epoch.
    """

    offsets: Mapping[int, int]
    epochs: Mapping[int, int]
    positions_of_epochs: Mapping[int, int] = field(default_factory=dict)

    def known(self) -> dict[int, Position]:
        """Return the positions whose epochs are known."""
        offsets = {**self.offsets, **self.positions_of_epochs}
        return {p: Position(offsets[p], epoch) for p, epoch in self.epochs.items() if offsets.get(p, 0)}


def continuations(bootstrap_servers: str, reached: Mapping[str, Reached]) -> dict[str, Continuation]:
    """Return where a follower of topics can go on, by topic; topics whose brokers don't answer are left out. Blocks.

    Records before the beginning of a topic were removed, and aren't lost.

    Raises `UnavailableError` if no broker answers.
    """
    checked = check(bootstrap_servers, {topic: each.known() for topic, each in reached.items()})
    ends = TopicEnds(bootstrap_servers).ends(reached)
    return {
        topic: Continuation(topic, each.offsets, _shortened(each, ends[topic], checked.ends.get(topic, {})))
        for topic, each in reached.items()
        if topic not in checked.unanswered and ends.get(topic, {}).keys() >= each.offsets.keys()
    }


def continuation(bootstrap_servers: str, topic: str, reached: Reached) -> Continuation:
    """Return where a follower of one topic can go on; see `continuations`.

    Raises `UnavailableError` if the topic's brokers don't answer.
    """
    found = continuations(bootstrap_servers, {topic: reached}).get(topic)
    if found is None:
        raise UnavailableError(f"it isn't known yet whether topic {topic} has all records before {reached.offsets}")
    return found


def _shortened(reached: Reached, ends: Mapping[int, int], known: Mapping[int, int]) -> dict[int, int]:
    return {p: min(at, ends[p], known.get(p, at)) for p, at in reached.offsets.items()}
