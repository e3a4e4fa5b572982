"""Connectors: the external systems that rows come from and go to."""

from caraway.connectors import kinesis
from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import DataSource
from caraway.connectors.files import GCS, Azure, Files, FilesConnector
from caraway.connectors.http import HTTP, Certificate, HTTPConnector
from caraway.connectors.iceberg import Iceberg, IcebergConnector
from caraway.connectors.kafka import Kafka, KafkaConnector
from caraway.connectors.kinesis import Kinesis, KinesisConnector, at_timestamp
from caraway.connectors.preproc import Eval, PreProcValue, Ref, WhereValue, eval, ref  # noqa: A004 (the API's name)
from caraway.connectors.pubsub import PubSub, PubSubConnector
from caraway.connectors.redis import Redis, RedisConnector
from caraway.connectors.registries import Avro, Protobuf
from caraway.connectors.s3 import CSV, S3, S3Connector
from caraway.connectors.sampling import Sample
from caraway.connectors.sink import sink
from caraway.connectors.source import source
from caraway.connectors.tables import BigQuery, Mongo, MySQL, Postgres, Redshift, Snowflake, TableConnector
from caraway.connectors.webhook import Webhook, WebhookConnector
from caraway.datasets.dataset import SINK_FIELD, SOURCE_FIELD

__all__ = [
    "CSV",
    "GCS",
    "HTTP",
    "S3",
    "SINK_FIELD",
    "SOURCE_FIELD",
    "Avro",
    "Azure",
    "BigQuery",
    "Certificate",
    "DataConnector",
    "DataSource",
    "Eval",
    "Files",
    "FilesConnector",
    "HTTPConnector",
    "Iceberg",
    "IcebergConnector",
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
    "Redis",
    "RedisConnector",
    "Redshift",
    "Ref",
    "S3Connector",
    "Sample",
    "Snowflake",
    "TableConnector",
    "Webhook",
    "WebhookConnector",
    "WhereValue",
    "at_timestamp",
    "eval",
    "kinesis",
    "ref",
    "sink",
    "source",
]
