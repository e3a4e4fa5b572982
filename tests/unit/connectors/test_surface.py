"""Tests of the names that the packages export."""

import pytest

import caraway.connectors
import caraway.connectors.connectors
import caraway.sources
from caraway.connectors import kinesis
from caraway.integrations import Secret, aws

NAMES = (
    "source sink ref Ref eval Eval PreProcValue WhereValue DataSource DataConnector Webhook Kafka S3 Postgres MySQL "
    "Snowflake BigQuery Redshift Mongo Kinesis PubSub HTTP Certificate Avro Protobuf CSV at_timestamp "
    "WebhookConnector KafkaConnector S3Connector TableConnector KinesisConnector PubSubConnector HTTPConnector "
    "SOURCE_FIELD SINK_FIELD"
)
CONNECTORS = NAMES.split()
LATER = {"HTTP", "HTTPConnector", "PubSub", "PubSubConnector", "Certificate", "eval", "Eval", "sink", "SINK_FIELD"}


@pytest.mark.spec("connectors:1:fennel.connectors")
def test_connectors() -> None:
    assert set(CONNECTORS) <= set(caraway.connectors.__all__)
    assert all(hasattr(caraway.connectors, name) for name in caraway.connectors.__all__)
    assert caraway.connectors.kinesis is kinesis
    # `Sample` is Caraway's own addition to the API.
    assert "Sample" in caraway.connectors.__all__


@pytest.mark.spec("connectors:1:fennel.connectors.connectors")
def test_all_connectors_in_one_module() -> None:
    exported = caraway.connectors.connectors
    assert {*CONNECTORS, "Sample", "SnapshotData"} <= set(exported.__all__)
    for name in CONNECTORS:
        assert getattr(exported, name) is getattr(caraway.connectors, name)


@pytest.mark.spec("connectors:1:fennel.sources")
def test_the_older_name_has_what_it_had() -> None:
    names = set(caraway.sources.__all__)
    assert {"source", "Webhook", "Kafka", "S3", "Kinesis", "ref"} <= names
    assert not LATER & names
    for name in names:
        assert getattr(caraway.sources, name) is getattr(caraway.connectors, name)


@pytest.mark.spec("connectors:1:fennel.integrations, fennel.integrations.aws")
def test_secrets() -> None:
    assert Secret is aws.Secret
