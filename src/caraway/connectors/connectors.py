"""All connectors in one module, under the names that the API has."""

# Compatibility only: new code imports from `caraway.connectors`.
from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource
from caraway.connectors.http import HTTP, Certificate, HTTPConnector
from caraway.connectors.kafka import Kafka, KafkaConnector
from caraway.connectors.kinesis import Kinesis, KinesisConnector, at_timestamp
from caraway.connectors.preproc import Eval, PreProcValue, Ref, WhereValue, eval, ref  # noqa: A004 (the API's name)
from caraway.connectors.pubsub import PubSub, PubSubConnector
from caraway.connectors.registries import Avro, Protobuf
from caraway.connectors.s3 import CSV, S3, S3Connector
from caraway.connectors.sampling import Sample
from caraway.connectors.sink import SnapshotData, sink
from caraway.connectors.source import source
from caraway.connectors.tables import BigQuery, Mongo, MySQL, Postgres, Redshift, Snowflake, TableConnector
from caraway.connectors.webhook import Webhook, WebhookConnector
from caraway.datasets.dataset import SINK_FIELD, SOURCE_FIELD

__all__ = [
    "CSV",
    "HTTP",
    "S3",
    "SINK_FIELD",
    "SOURCE_FIELD",
    "Avro",
    "BigQuery",
    "Certificate",
    "DataConnector",
    "DataSource",
    "Eval",
    "HTTPConnector",
    "Kafka",
    "KafkaConnector",
    "Kinesis",
    "KinesisConnector",
    "Mongo",
    "MySQL",
    "Postgres",
    "PreProcValue",
    "Protobuf",
    "PubSub",
    "PubSubConnector",
    "Redshift",
    "Ref",
    "S3Connector",
    "Sample",
    "SnapshotData",
    "Snowflake",
    "TableConnector",
    "Webhook",
    "WebhookConnector",
    "WhereValue",
    "at_timestamp",
    "eval",
    "ref",
    "sink",
    "source",
]
