"""How topics are consumed."""

from typing import Any

from confluent_kafka import Consumer, KafkaError

from caraway.topics.connection import client_config, kafka_logger

# Records taken at once. A batch of 500 takes 10 ms, which is what a record that comes meanwhile waits; a backlog goes
# faster in batches in which keys occur more often.
FRESH_BATCH, BACKLOG_BATCH = 500, 4000

# What a consumer says when the offset that it was given isn't on the topic (any more).
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

CONFIG: dict[str, Any] = {
    # Required, and unused: partitions are assigned by us, offsets are kept with the data.
    "group.id": "caraway-index",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # The broker answers as soon as there is a record. An idle request lasts this time; a new topic waits so long.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    # Records read ahead stand in one line: what a backlog puts into it delays the fresh records of other topics.
    "queued.min.messages": 2000,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 256 * 1024,
}


def connect(bootstrap_servers: str) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(client_config(bootstrap_servers) | CONFIG, logger=kafka_logger())
