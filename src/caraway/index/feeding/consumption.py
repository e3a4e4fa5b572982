"""The settings with which indexes consume topics."""

from typing import Any

from confluent_kafka import Consumer, KafkaError

from caraway.topics.connection import client_config, kafka_logger

# The most records of a batch: a batch of 500 takes 10 ms, which a record that arrives meanwhile has to wait; a backlog
# is processed faster in larger batches, in which keys repeat.
FRESH_BATCH, BACKLOG_BATCH = 500, 4000

# Errors of a consumer if the topic doesn't have the offset that it was given, or no longer has it.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

CONFIG: dict[str, Any] = {
    # A group is required but not used: partitions are assigned explicitly, and offsets are stored with the data.
    "group.id": "caraway-index",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # The broker answers as soon as there is a record. Without records a request takes this time, and a new topic has
    # to wait for its end.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    # Records read ahead of all topics wait in one queue, so a backlog delays fresh records of other topics by this
    # many.
    "queued.min.messages": 2000,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 256 * 1024,
}


def connect(bootstrap_servers: str) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(client_config(bootstrap_servers) | CONFIG, logger=kafka_logger())
