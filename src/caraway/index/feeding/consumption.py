"""The settings with which indexes consume topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError

from caraway.topics.connection import consumer_config, kafka_logger

# The codes of a consumer's errors if the topic doesn't have the offset from which the index reads: it was deleted by
# retention, or the topic was created anew.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

_COMMON: dict[str, Any] = {
    # librdkafka requires a group id, but the group isn't used: partitions are assigned explicitly, and offsets are
    # stored in the index's database together with the data.
    "group.id": "caraway-index",
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


# For topics whose records are indexed as they come. librdkafka fetches no more records of a partition while 2,000 wait
# in the consumer's queue, and none at all while 1 MiB waits. All topics share the queue, so a fresh record comes behind
# the waiting records of all topics. A batch of 500 is applied in some 10 ms.
FRESH = Reading(
    _COMMON
    | {
        "queued.min.messages": 2000,
        "queued.max.messages.kbytes": 1024,
        "fetch.message.max.bytes": 256 * 1024,
    },
    batch=500,
)

# For topics with a backlog. The consumer should always have records ready; its queue takes 16 MiB at most, and a fetch
# 1 MiB of each partition. Large batches are faster for each record: keys repeat in them, and a batch changes each tile
# only once. A record of a thousand keys takes 16.7 us in batches of 10,000, 11.5 us in batches of 30,000 and 10.4 us in
# batches of 60,000; a batch of 30,000 takes less than half a second.
BACKLOG = Reading(
    _COMMON
    | {
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.message.max.bytes": 1024 * 1024,
        # The broker gathers what comes for some milliseconds: a fetch for each new message would take its time.
        "fetch.min.bytes": 256 * 1024,
        "fetch.wait.max.ms": 25,
    },
    batch=30_000,
)

# A topic is left to the thread for backlogs when more than `BEHIND` of its records wait, and taken back when at most
# `CAUGHT_UP` do. The numbers differ, because a move costs some fetches: a topic with a steady high rate shouldn't move
# to and fro.
BEHIND, CAUGHT_UP = 2000, 500


def connect(bootstrap_servers: str, config: Mapping[str, Any] = FRESH.config) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(consumer_config(bootstrap_servers) | dict(config), logger=kafka_logger())
