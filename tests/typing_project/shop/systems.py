"""Connectors to all systems, everything annotated."""

from datetime import datetime

from caraway.connectors import (
    CSV,
    HTTP,
    S3,
    Avro,
    BigQuery,
    Certificate,
    DataConnector,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    Protobuf,
    PubSub,
    Redshift,
    Sample,
    Snowflake,
    Webhook,
    at_timestamp,
    sink,
    source,
)
from caraway.datasets import Dataset, dataset, field
from caraway.integrations.aws import Secret

key = Secret(arn="arn:aws:secretsmanager:eu:1:secret:keys", role_arn="arn:aws:iam::1:role/r")

kafka = Kafka(
    name="kafka",
    bootstrap_servers="b:9092",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    sasl_plain_username=key["username"],
    sasl_plain_password=key["password"],
)
registry = Avro(registry="confluent", url="https://registry", username="u", password=key)
protobuf = Protobuf(registry="confluent", url="https://registry", token=key)
postgres = Postgres(name="pg", host="h", db_name="d", username="u", password=key)
mysql = MySQL(name="my", host="h", db_name="d", username="u", password="p", port=3307, jdbc_params="a=b")
snowflake = Snowflake(
    name="sf", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r"
)
bigquery = BigQuery(name="bq", project_id="p", dataset_id="d", service_account_key={"type": "service_account"})
redshift = Redshift(name="rs", host="h", db_name="d", schema="s", s3_access_role_arn="arn")
mongo = Mongo(name="mo", host="h", db_name="d", username="u", password="p")
s3 = S3(name="lake", role_arn="arn")
kinesis = Kinesis(name="kin", role_arn="arn:aws:iam::1:role/r")
pubsub = PubSub(name="ps", project_id="p", service_account_key=key)
http = HTTP(name="http", host="https://h", healthz="/health", ca_cert=Certificate(cert=key))
webhook = Webhook(name="hook")

connectors: list[DataConnector] = [
    kafka.topic("a"),
    kafka.topic("a", format=registry),
    kafka.topic("a", protobuf),
    Kafka.get(name="registered").topic("a"),
    postgres.table("t", cursor="updated_at"),
    mysql.table("t", "updated_at"),
    snowflake.table("T", cursor="UPDATED_AT"),
    bigquery.table("t", cursor="updated_at"),
    redshift.table("t", cursor="updated_at"),
    mongo.collection("c", cursor="updated_at"),
    s3.bucket("b", prefix="p/", format="parquet", presorted=True),
    s3.bucket("b", path="p/%Y/%m/*.csv", format=CSV(delimiter=";", headers=["a", "b"]), spread="1d"),
    kinesis.stream("arn:aws:kinesis:eu:1:stream/s", init_position=at_timestamp("2024-01-01T00:00:00Z"), format="json"),
    kinesis.stream("arn:aws:kinesis:eu:1:stream/s", "latest", "json"),
    pubsub.topic("t", format="json"),
    http.path("/rows", limit=10, headers={"X": "y"}),
    webhook.endpoint("e"),
]


@sink(S3(name="out").bucket("b", prefix="out/", format="delta"), every="1h", how="incremental", renames={"value": "v"})
@sink(snowflake.table("OUT"), how="incremental")
@sink(http.path("/rows"), cdc="debezium")
@sink(kafka.topic("out"), cdc="debezium", env=["prod"])
@dataset
@source(postgres.table("t", cursor="updated_at"), disorder="1h", cdc="upsert", every="10m", bounded=True, idleness="1h")
@source(kafka.topic("t"), disorder="1h", cdc="debezium", sample=Sample(0.1, using=["key"]))
class Mirror:
    key: int = field(key=True)
    value: str
    updated_at: datetime


mirror: Dataset = Mirror
