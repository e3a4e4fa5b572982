"""The ids that Kafka gives to topics: a topic that is removed and created again has another one."""

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from caraway.dataplane.topics.connection import client_config, kafka_logger
from caraway.errors import UnavailableError

ANSWER_SECONDS = 10.0


def topic_id(bootstrap_servers: str, name: str) -> str:
    """Return the id of a topic, in Base64.

    Raises `UnavailableError` if the broker at "host:port" doesn't answer, or has no such topic.
    """
    admin = AdminClient(client_config(bootstrap_servers), logger=kafka_logger())
    try:
        answer = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)[name]
        return str(answer.result().topic_id)
    except KafkaException as error:
        raise UnavailableError(f"the broker doesn't tell of topic {name}: {error}") from error
