"""Connectors: a table, topic, path or endpoint of an external system, as plain data.

A system is the address of an external system with its credentials; a connector is one thing inside it. A system that is
registered on the server is a reference by kind and name.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A reference to the secret `arn`, read as `role_arn`, at `path` in its JSON, by the data plane only."""

    arn: str
    role_arn: str | None = None
    path: tuple[str, ...] = ()


Secretish = str | SecretRef


class SystemKind(StrEnum):
    """The kinds of external systems; the values are the names of the authoring classes."""

    WEBHOOK = "Webhook"
    KAFKA = "Kafka"
    S3 = "S3"
    POSTGRES = "Postgres"
    MYSQL = "MySQL"
    SNOWFLAKE = "Snowflake"
    BIGQUERY = "BigQuery"
    REDSHIFT = "Redshift"
    MONGO = "Mongo"
    KINESIS = "Kinesis"
    PUBSUB = "PubSub"
    HTTP = "HTTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSystem:
    """A system that was registered on the server, by kind and name."""

    kind: SystemKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSystem:
    """Brokers that speak Kafka's protocol."""

    name: str
    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    username: Secretish | None = None
    password: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3System:
    """S3, or a store that speaks its protocol; without keys and role, it is opened as the worker that reads."""

    name: str
    access_key_id: Secretish | None = None
    secret_access_key: Secretish | None = None
    role_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSystem:
    """A database of a Postgres server; `jdbc_params` is `k=v` pairs joined with `&`."""

    name: str
    host: str
    port: int
    database: str
    username: Secretish
    password: Secretish
    jdbc_params: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLSystem:
    """A database of a MySQL server; `jdbc_params` is `k=v` pairs joined with `&`."""

    name: str
    host: str
    port: int
    database: str
    username: Secretish
    password: Secretish
    jdbc_params: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeSystem:
    """A schema of a Snowflake database."""

    name: str
    account: str
    database: str
    username: Secretish
    password: Secretish
    warehouse: str
    schema: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BigQuerySystem:
    """A BigQuery dataset; the key is JSON text or a secret."""

    name: str
    project_id: str
    dataset_id: str
    service_account_key: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class RedshiftSystem:
    """A schema of a Redshift database; opened by a role through S3, or by username and password."""

    name: str
    host: str
    port: int
    database: str
    schema: str
    s3_access_role_arn: str | None = None
    username: Secretish | None = None
    password: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MongoSystem:
    """A database of a MongoDB cluster."""

    name: str
    host: str
    database: str
    username: Secretish
    password: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSystem:
    """Kinesis, opened by a role."""

    name: str
    role_arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubSystem:
    """A project of Google PubSub; the key is JSON text or a secret."""

    name: str
    project_id: str
    service_account_key: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPSystem:
    """A server that takes changes by POST; `ca_cert` is the PEM text of the CA that signed its certificate."""

    name: str
    host: Secretish
    healthz: str
    ca_cert: Secretish


System = (
    RegisteredSystem
    | KafkaSystem
    | S3System
    | PostgresSystem
    | MySQLSystem
    | SnowflakeSystem
    | BigQuerySystem
    | RedshiftSystem
    | MongoSystem
    | KinesisSystem
    | PubSubSystem
    | HTTPSystem
)


class RegistryFormat(StrEnum):
    """Encodings whose schemas are in a registry."""

    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """Records in `format`, with schemas in a registry at `url`."""

    format: RegistryFormat
    registry: str
    url: str
    username: Secretish | None = None
    password: Secretish | None = None
    token: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CSVFormat:
    """Delimited text; without `headers` the first line has the names."""

    delimiter: str = ","
    headers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConnector:
    """Rows that clients post to `endpoint` of the webhook `name`, readable for `retention_us`."""

    name: str
    endpoint: str
    retention_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnector:
    """A topic. `format` is "json" or a registry's format; another text is refused at commit."""

    system: KafkaSystem | RegisteredSystem
    topic: str
    format: str | SchemaRegistry = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Connector:
    """Objects of a bucket below `prefix`; the rest of their keys matches `suffix` (None: any).

    `format` is "json", "parquet", "delta", "hudi" or CSV. An object whose path has a time holds rows from up to
    `spread_us` around it.
    """

    system: S3System | RegisteredSystem
    bucket: str
    prefix: str
    suffix: str | None = None
    format: str | CSVFormat
    presorted: bool = False
    spread_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConnector:
    """A table, or a collection of a document store, read in the order of the column `cursor`."""

    system: (
        PostgresSystem
        | MySQLSystem
        | SnowflakeSystem
        | BigQuerySystem
        | RedshiftSystem
        | MongoSystem
        | RegisteredSystem
    )
    table: str
    cursor: str | None


class StreamStart(StrEnum):
    """Named starts of the first read of a stream."""

    LATEST = "latest"
    TRIM_HORIZON = "trim_horizon"


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisConnector:
    """A stream; `start` is a named start of the first read, or an instant of arrival (microseconds)."""

    system: KinesisSystem | RegisteredSystem
    stream_arn: str
    start: StreamStart | int
    format: str = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubConnector:
    """A topic of PubSub."""

    system: PubSubSystem | RegisteredSystem
    topic: str
    format: str = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPConnector:
    """An endpoint that takes at most `limit` changes a request."""

    system: HTTPSystem | RegisteredSystem
    endpoint: str
    limit: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


Connector = (
    WebhookConnector
    | KafkaConnector
    | S3Connector
    | TableConnector
    | KinesisConnector
    | PubSubConnector
    | HTTPConnector
)

SYSTEM_KINDS: dict[type[System], SystemKind] = {
    KafkaSystem: SystemKind.KAFKA,
    S3System: SystemKind.S3,
    PostgresSystem: SystemKind.POSTGRES,
    MySQLSystem: SystemKind.MYSQL,
    SnowflakeSystem: SystemKind.SNOWFLAKE,
    BigQuerySystem: SystemKind.BIGQUERY,
    RedshiftSystem: SystemKind.REDSHIFT,
    MongoSystem: SystemKind.MONGO,
    KinesisSystem: SystemKind.KINESIS,
    PubSubSystem: SystemKind.PUBSUB,
    HTTPSystem: SystemKind.HTTP,
}


def system_kind(connector: Connector) -> SystemKind:
    """Return the kind of the system that a connector is in."""
    if isinstance(connector, WebhookConnector):
        return SystemKind.WEBHOOK
    system = connector.system
    return system.kind if isinstance(system, RegisteredSystem) else SYSTEM_KINDS[type(system)]


def system_name(connector: Connector) -> str:
    """Return the name of the system that a connector is in."""
    return connector.name if isinstance(connector, WebhookConnector) else connector.system.name


def identifier(connector: Connector) -> str:
    """Return a connector's name for people: its system and the thing in it that is read."""
    return f"[{system_kind(connector)}: {system_name(connector)}]({_inside(connector)})"


def _inside(connector: Connector) -> str:
    match connector:
        case WebhookConnector() | HTTPConnector():
            return f"endpoint={connector.endpoint}"
        case KafkaConnector() | PubSubConnector():
            return f"topic={connector.topic}, format={format_name(connector)}"
        case S3Connector():
            return f"bucket={connector.bucket},prefix={connector.prefix}"
        case TableConnector():
            return f"table={connector.table}"
        case KinesisConnector():
            return f"stream={connector.stream_arn}, format={connector.format}"


def format_name(connector: Connector) -> str | None:
    """Return the name of the format that the rows of a connector are in; None for tables."""
    match connector:
        case TableConnector():
            return None
        case WebhookConnector() | HTTPConnector():
            return "json"
        case _:
            match connector.format:
                case SchemaRegistry():
                    return str(connector.format.format)
                case CSVFormat():
                    return "csv"
                case other:
                    return other
