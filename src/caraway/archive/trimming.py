"""The removal of archived records from topics."""

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from caraway.errors import UnavailableError
from caraway.topics.connection import client_config, kafka_logger

ANSWER_SECONDS = 10.0


def remove_before(bootstrap_servers: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Remove the records of topics before some offsets, by partition.

    Kafka deletes files, each of which has many records (`segment.bytes`, `segment.ms`). The other records before the
    offsets can't be read any more, and are deleted with their file.

    Raises `UnavailableError` if the broker at "host:port" doesn't answer, or refuses.
    """
    wanted = [TopicPartition(topic, p, offset) for topic, found in offsets.items() for p, offset in found.items()]
    if not wanted:
        return
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    try:
        answers = admin.delete_records(wanted, request_timeout=ANSWER_SECONDS, operation_timeout=ANSWER_SECONDS)
        for answer in answers.values():
            answer.result()
    except KafkaException as error:
        raise UnavailableError(f"archived records can't be removed from topics: {error}") from error
