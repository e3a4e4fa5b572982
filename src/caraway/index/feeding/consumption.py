"""The settings with which indexes consume topics."""

from typing import Any

from confluent_kafka import Consumer, KafkaError

from caraway.topics.connection import client_config, kafka_logger

# The most records of a batch. A batch of 500 takes 10 ms, and a record that arrives meanwhile waits that long. A
# backlog is processed faster in larger batches, in which keys repeat, because a batch changes each tile once.
FRESH_BATCH, BACKLOG_BATCH = 500, 4000

# Errors of a consumer if the topic doesn't have the offset that it was given, or no longer has it.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

CONFIG: dict[str, Any] = {
    # A group is required but not used: partitions are assigned explicitly, and offsets are stored with the data.
    "group.id": "caraway-index",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # The longest time for which the broker holds a request while there is no record. A topic that is added meanwhile is
    # read only after this request has ended.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    # The most records that wait in the consumer's queue. All topics share it, so while one topic has a backlog, fresh
    # records of the others come behind as many of its records.
    "queued.min.messages": 2000,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 256 * 1024,
}


def connect(bootstrap_servers: str) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(client_config(bootstrap_servers) | CONFIG, logger=kafka_logger())
