"""About how many records a message of a topic has, by its last messages.

Offsets count messages. This number times the messages that wait on a topic is about how many records wait.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaException, TopicPartition

from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.connection import consumer_config, kafka_logger
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.polling import poll_some
from caraway.dataplane.topics.positions import Offsets, while_moving
from caraway.errors import UnavailableError

# At most this many messages of each partition are read, unless a caller wants another number. Reading them takes at
# most TIMEOUT_S seconds in all.
SAMPLE = 20
TIMEOUT_S = 5.0


def records_per_message(
    bootstrap_servers: str, topics: Iterable[str], *, sample: int = SAMPLE, since: Offsets = MappingProxyType({})
) -> Mapping[str, float]:
    """Return the average number of records in the last messages of each topic: at least 1, also if it has none.

    Args:
        bootstrap_servers: The broker "host:port".
        topics: The topics.
        sample: At most this many messages of each partition are read.
        since: Only messages from these offsets on are read; a missing partition counts from its beginning.

    Raises:
        UnavailableError: No broker answers at "host:port".
    """
    wanted = set(topics)
    if not wanted:
        return {}
    config = consumer_config(bootstrap_servers) | {"group.id": "caraway-block-sizes", "enable.auto.commit": False}
    consumer = Consumer(config, logger=kafka_logger())
    try:
        # A job may be started right after its topics were created, when the brokers don't know all leaders yet.
        messages, records = while_moving(TIMEOUT_S)(_sample, consumer, wanted, sample, since)
    except KafkaException as error:
        raise UnavailableError(f"no Kafka broker answers at {bootstrap_servers}: {error}") from error
    finally:
        consumer.close()
    return {topic: records[topic] / messages[topic] if messages[topic] else 1.0 for topic in wanted}


def _sample(
    consumer: Consumer, topics: Iterable[str], sample: int, since: Offsets
) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of messages and records among the last messages of each topic."""
    messages, records = Counter[str](), Counter[str]()
    deadline = time.monotonic() + TIMEOUT_S
    known = consumer.list_topics(timeout=TIMEOUT_S).topics
    ends: dict[tuple[str, int], int] = {}
    starts = []
    for topic in topics:
        for partition in known[topic].partitions if topic in known else ():
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
            start = max(low, end - sample, since.get(topic, {}).get(partition, 0))
            if start < end:
                ends[topic, partition] = end
                starts.append(TopicPartition(topic, partition, start))
    consumer.assign(starts)
    while ends and time.monotonic() < deadline:
        for message in poll_some(consumer, SAMPLE * len(ends), 0.1):
            if message.error() is not None:
                continue
            topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
            # A marker only shows how far a job is. It would count as a message with one record, so it is left out.
            if not is_marker(message.key()):
                messages[topic] += 1
                records[topic] += records_in(message.value())
            if offset + 1 >= ends.get((topic, partition), 0):
                ends.pop((topic, partition), None)
    return messages, records
