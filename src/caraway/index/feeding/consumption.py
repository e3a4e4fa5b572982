"""The settings with which indexes consume topics."""

from typing import Any

from confluent_kafka import Consumer, KafkaError

from caraway.topics.connection import client_config, kafka_logger

# The most records of a batch: 500, or up to 4,000 if the consumer has more ready. A batch of 500 takes 10 ms, and a
# record that arrives meanwhile waits that long. Larger batches process a backlog faster: keys repeat in them, and a
# batch changes each tile only once.
FRESH_BATCH, BACKLOG_BATCH = 500, 4000

# The codes of a consumer's errors if the topic doesn't have the offset from which the index reads: it was deleted by
# retention, or the topic was created anew.
LOST_OFFSET = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - its public name

CONFIG: dict[str, Any] = {
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
    # librdkafka fetches no more records while 2,000, or 1 MiB, wait in the consumer's queue. All topics share the
    # queue: a fresh record of one topic comes behind the waiting records of another that has a backlog.
    "queued.min.messages": 2000,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 256 * 1024,
}


def connect(bootstrap_servers: str) -> Consumer:
    """Return a consumer without any assignment."""
    return Consumer(client_config(bootstrap_servers) | CONFIG, logger=kafka_logger())
