"""External systems: their addresses and credentials, and the formats of what they have, as plain data.

A system that is registered on the server is a reference by kind and name. Connectors (`caraway.graph.connectors`) are
the things inside of systems.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A reference to a secret, whose value only the data plane looks up.

    Attributes:
        arn: The secret: an ARN of AWS, or the place and the name, such as `store:NAME`.
        role_arn: The role of AWS with which it is read; None for the server's own identity.
        path: The keys that lead to the value, if the secret is a JSON object.
    """

    arn: str
    role_arn: str | None = None
    path: tuple[str, ...] = ()


Secretish = str | SecretRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSystem:
    """A system that was registered on the server, by kind and name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The address and credentials of an external system; the fields of a subclass are its settings."""

    #: The kind, which is the name of the authoring class.
    kind: ClassVar[str]
    name: str

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            SYSTEMS[cls.kind] = cls


# The class of each kind of system. `dataclass(slots=True)` makes a second class from each class, so `__init_subclass__`
# runs for both. The second class, which is the one in use, replaces the first here.
SYSTEMS: dict[str, type[System]] = {}

WEBHOOK = "Webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSystem(System):
    """A system that has tables or collections.

    A subclass names the reader and the writer of its tables, and the library that these need, as connectors of other
    systems do.
    """

    reader: ClassVar[str] = ""
    writer: ClassVar[str] = ""
    library: ClassVar[tuple[str, str] | tuple[()]] = ()

    def unreadable(self) -> str:
        """Return why the server can't read tables of a system with these settings; empty if it can."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DatabaseSystem(TableSystem):
    """A database of a server that JDBC opens; `jdbc_params` is `k=v` pairs joined with `&`."""

    host: str
    port: int
    database: str
    username: Secretish
    password: Secretish
    jdbc_params: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSystem(System):
    """Brokers that speak Kafka's protocol."""

    kind: ClassVar = "Kafka"
    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    username: Secretish | None = None
    password: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3System(System):
    """S3, or a store that speaks its protocol; without keys and role, it is opened as the worker that reads."""

    kind: ClassVar = "S3"
    access_key_id: Secretish | None = None
    secret_access_key: Secretish | None = None
    role_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSystem(System):
    """Folders of the server's machine."""

    kind: ClassVar = "Files"


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSSystem(System):
    """Google Cloud Storage, opened as the worker that reads."""

    kind: ClassVar = "GCS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSystem(System):
    """A storage account of Azure; without a key, it is opened as the worker that reads."""

    kind: ClassVar = "Azure"
    account_name: str
    account_key: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSystem(_DatabaseSystem):
    """A database of a Postgres server."""

    kind: ClassVar = "Postgres"
    reader: ClassVar = "caraway.dataplane.sources.tables.postgres:PostgresReader"
    writer: ClassVar = "caraway.dataplane.sinks.postgres.writer:PostgresWriter"
    library: ClassVar = ("psycopg", "postgres")


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLSystem(_DatabaseSystem):
    """A database of a MySQL server."""

    kind: ClassVar = "MySQL"
    reader: ClassVar = "caraway.dataplane.sources.tables.mysql:MySQLReader"
    library: ClassVar = ("pymysql", "mysql")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeSystem(TableSystem):
    """A schema of a Snowflake database."""

    kind: ClassVar = "Snowflake"
    reader: ClassVar = "caraway.dataplane.sources.tables.snowflake:SnowflakeReader"
    writer: ClassVar = "caraway.dataplane.sinks.snowflake:SnowflakeWriter"
    library: ClassVar = ("snowflake.connector", "snowflake")
    account: str
    database: str
    username: Secretish
    password: Secretish
    warehouse: str
    schema: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BigQuerySystem(TableSystem):
    """A BigQuery dataset; the key is JSON text or a secret."""

    kind: ClassVar = "BigQuery"
    reader: ClassVar = "caraway.dataplane.sources.tables.bigquery:BigQueryReader"
    library: ClassVar = ("google.cloud.bigquery", "bigquery")
    project_id: str
    dataset_id: str
    service_account_key: Secretish


# The addresses of clusters, <cluster>.<identity>.<region>.redshift.amazonaws.com, and of workgroups of Redshift
# Serverless, <workgroup>.<account>.<region>.redshift-serverless.amazonaws.com.
_REDSHIFT_HOST = re.compile(
    r"([^.]+)\.[^.]+\.([^.]+)\.redshift(-serverless)?\.amazonaws\.com(?:\.cn)?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedshiftSystem(TableSystem):
    """A schema of a Redshift database; opened by a role, or by username and password."""

    kind: ClassVar = "Redshift"
    reader: ClassVar = "caraway.dataplane.sources.tables.redshift:RedshiftReader"
    host: str
    port: int
    database: str
    schema: str
    s3_access_role_arn: str | None = None
    username: Secretish | None = None
    password: Secretish | None = None

    @property
    def library(self) -> tuple[str, str]:  # type: ignore[override]  # a role needs another one
        """The library that the reader needs beside psycopg, which every server has."""
        return ("psycopg" if self.s3_access_role_arn is None else "boto3", "redshift")

    @property
    def cluster(self) -> tuple[str, str, bool] | None:
        """The cluster or workgroup, its region, and whether it is serverless, from its address; None for others."""
        found = _REDSHIFT_HOST.fullmatch(self.host)
        return None if found is None else (found[1], found[2], found[3] is not None)

    def unreadable(self) -> str:
        """Return why the role can't sign in, if the host isn't the address of a cluster; otherwise an empty text."""
        if self.s3_access_role_arn is None or self.cluster is not None:
            return ""
        return (
            f"the host {self.host!r} isn't the address of a cluster or workgroup, which a role needs; give the one "
            "that ends in .redshift.amazonaws.com or .redshift-serverless.amazonaws.com, and another way to it by "
            "the setting sources.endpoints"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MongoSystem(TableSystem):
    """A database of a MongoDB cluster."""

    kind: ClassVar = "Mongo"
    reader: ClassVar = "caraway.dataplane.sources.tables.mongo:MongoReader"
    library: ClassVar = ("pymongo", "mongo")
    host: str
    database: str
    username: Secretish
    password: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSystem(System):
    """Kinesis, opened by a role."""

    kind: ClassVar = "Kinesis"
    role_arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubSystem(System):
    """A project of Google PubSub; the key is JSON text or a secret."""

    kind: ClassVar = "PubSub"
    project_id: str
    service_account_key: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSystem(System):
    """A catalog of Iceberg tables: a REST catalog if `uri` begins with http, else a database by SQLAlchemy's URL.

    `catalog` is the name under which a database has the tables, `warehouse` the place or name of the tables' files.
    `credential` (client_id:secret) and `token` open a REST catalog, the keys the S3 that the files are in.
    """

    kind: ClassVar = "Iceberg"
    uri: Secretish
    warehouse: str | None = None
    catalog: str | None = None
    credential: Secretish | None = None
    token: Secretish | None = None
    access_key_id: Secretish | None = None
    secret_access_key: Secretish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPSystem(System):
    """A server that takes changes by POST; `ca_cert` is the PEM text of the CA that signed its certificate."""

    kind: ClassVar = "HTTP"
    host: Secretish
    healthz: str
    ca_cert: Secretish


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSystem(System):
    """A database of a Redis server; `transport` is "plain" or "tls". Without a username, it is the default user's."""

    kind: ClassVar = "Redis"
    host: Secretish
    port: int = 6379
    database: int = 0
    username: Secretish | None = None
    password: Secretish | None = None
    transport: str = "plain"


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
