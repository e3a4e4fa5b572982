"""Making Kafka begin new files of a topic, so that it can delete all files with older records.

Kafka deletes whole files (segments) of a topic, and never the one to which it writes. By default it begins a new file
after a week or a gigabyte.
"""

import time
from collections.abc import Callable, Iterable

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError

LOG = structlog.get_logger(__name__)

ANSWER_SECONDS = 10.0
SETTING = "segment.ms"
# Kafka's least value for the setting: a record that comes more than this many milliseconds after the first one of a
# file begins another file.
SHORTEST_MS = "1"
# A broker applies a changed setting some milliseconds after it was accepted. Until then the setting is read again and
# again, with this pause in seconds.
POLL_SECONDS = 0.05
# A record begins a file only if it is later than the first record of the last file. So the pause between two records
# is longer than `SHORTEST_MS`.
PAUSE_SECONDS = 0.01


def begin_segments(bootstrap_servers: str, topic: str, write: Callable[[], object]) -> None:
    """Have each partition of a topic begin a new file, and write to it.

    Args:
        bootstrap_servers: The broker, "host:port".
        topic: The topic.
        write: Writes a record to each partition, and returns once the records are durable. It is called twice, and
            behind the first of these two records there is no record in any older file.

    Raises:
        UnavailableError: The broker doesn't answer, refuses, or doesn't follow the changed setting in time.
    """
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    try:
        before = _setting(admin, topic)
        _set(admin, topic, AlterConfigOpType.SET)
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            while _setting(admin, topic) != SHORTEST_MS:
                if time.monotonic() > deadline:
                    raise UnavailableError(f"the brokers don't follow {SETTING} of the topic {topic}, after {before}")
                time.sleep(POLL_SECONDS)
            time.sleep(PAUSE_SECONDS)
            write()
            time.sleep(PAUSE_SECONDS)
            write()
        finally:
            # Caraway's topics have no such setting of their own, so it is removed, and the broker's setting applies
            # again.
            _set(admin, topic, AlterConfigOpType.DELETE)
    except KafkaException as error:
        raise UnavailableError(f"the topic {topic} can't begin new files: {error}") from error


def _set(admin: AdminClient, topic: str, operation: AlterConfigOpType) -> None:
    entry = ConfigEntry(SETTING, SHORTEST_MS, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource], request_timeout=ANSWER_SECONDS).values():
        answer.result()


def _setting(admin: AdminClient, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS).values()
    return str(answer.result()[SETTING].value)


def begin_files_with(bootstrap_servers: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> dict[int, int]:
    """Have each partition begin a new file with some records; return offsets in these files, by partition.

    All records that the topic had before are before the offsets, and in older files. The given records, of keys and
    values, are written twice, and the second time behind the offsets.

    Raises:
        UnavailableError: The broker doesn't answer or refuses.
    """
    given = list(records)
    ends: dict[int, int] = {}
    found = TopicEnds(bootstrap_servers)
    writer = TopicWriter(bootstrap_servers, timeout_s=ANSWER_SECONDS)

    def write() -> None:
        ends.update(found.ends([topic]).get(topic, {}))
        for key, value in given:
            writer.write_to_all(topic, key, value).result(ANSWER_SECONDS)

    try:
        begin_segments(bootstrap_servers, topic, write)
    except (KafkaException, TimeoutError) as error:
        raise UnavailableError(f"Kafka doesn't take records on {topic}: {error}") from error
    finally:
        writer.close(ANSWER_SECONDS)
    return ends
