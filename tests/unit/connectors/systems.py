"""External systems, on which sources and sinks are tested."""

from typing import Any

from caraway.connectors import (
    HTTP,
    S3,
    BigQuery,
    Certificate,
    Kafka,
    Kinesis,
    Postgres,
    PubSub,
    Redshift,
    Snowflake,
    Webhook,
)

WEB = Webhook(name="web", retention="14d")
CLICKS = WEB.endpoint("clicks")
KAFKA: dict[str, Any] = {
    "name": "k",
    "bootstrap_servers": "b:9092",
    "security_protocol": "PLAINTEXT",
    "sasl_mechanism": "PLAIN",
}
BROKERS = Kafka(**KAFKA)
LAKE = S3(name="lake")
LOGIN: dict[str, Any] = {"host": "h", "db_name": "d", "username": "u", "password": "p"}
POSTGRES = Postgres(name="pg", **LOGIN)
SNOW = Snowflake(name="snow", account="a", db_name="d", username="u", password="p", warehouse="w", schema="s", role="r")
BIG = BigQuery(name="bq", project_id="p", dataset_id="d", service_account_key={"a": "b"})
RED = Redshift(name="red", db_name="d", host="h", schema="s", s3_access_role_arn="arn")
KINESIS = Kinesis(name="kin", role_arn="arn")
STREAM = KINESIS.stream("arn:s", "latest", "json")
GOOGLE = PubSub(name="ps", project_id="p", service_account_key={"a": "b"}).topic("t", "json")
SERVER = HTTP(name="h", host="https://x", healthz="/ok", ca_cert=Certificate("pem"))
