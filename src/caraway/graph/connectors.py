"""Connectors: a table, topic, path or endpoint of an external system, as plain data.

A system (`caraway.graph.systems`) is the address of an external system with its credentials; a connector is one thing
inside it. Each class says all that is special about it: the formats and the values of cdc that are possible, its
checks, and its reader. Other modules ask the class, so that a further system is a kind and its classes in these two
modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from caraway.errors import CommitError
from caraway.graph.formats import (
    ENVELOPE_CDC,
    FILES_READER,
    PLAIN_CDC,
    STORE_LIBRARIES,
    TABLE_CDC,
    TABLE_LIBRARIES,
    TABLE_READERS,
    is_installed,
    unreadable_table,
)
from caraway.graph.systems import (
    WEBHOOK,
    AzureSystem,
    CSVFormat,
    FilesSystem,
    GCSSystem,
    HTTPSystem,
    IcebergSystem,
    KafkaSystem,
    KinesisSystem,
    MySQLSystem,
    PostgresSystem,
    PubSubSystem,
    RedisSystem,
    RegisteredSystem,
    RegistryFormat,
    S3System,
    SchemaRegistry,
    System,
    TableSystem,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One thing that is read or written; a subclass has its fields, and what differs from the traits here."""

    # The class with which a server reads such a source, as "module:class"; empty if servers can't read the source, or
    # if clients send its rows, as to a webhook. The class is named and not imported, so that definitions don't load the
    # library of the external system.
    reader: ClassVar[str] = ""
    # The classes, as "module:class", that read the formats which `reader` can't read, by the name of the format.
    format_readers: ClassVar[Mapping[str, str]] = {}
    # The formats that the reader can read. If a source has another format, the error recommends the first of these.
    read_formats: ClassVar[tuple[str | None, ...]] = ()
    # True if records are the changes of a table. A delete may have only the table's key, so the keys of the dataset
    # can't be computed by preproc. A truncate deletes all rows of the dataset, so the dataset can't have another
    # source.
    captures: ClassVar[bool] = False
    # The module of a library that the reader or writer imports, and the extra of Caraway that installs the library;
    # empty if none is needed.
    library: ClassVar[tuple[str, str] | tuple[()]] = ()
    # The function, as "module:function", that removes the objects which the reader made in the external system, once
    # the source is deleted (`caraway.dataplane.sources.reader.Forget`); empty if the reader makes none.
    forget: ClassVar[str] = ""
    # The class with which a server writes such a sink, as "module:class"; empty if servers can't write it.
    writer: ClassVar[str] = ""
    # True if a sink writes a row under its key, so that datasets without keys can't have such a sink.
    needs_keys: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        CONNECTORS[cls.__name__] = cls

    @property
    def kind(self) -> str:
        """The kind of the connector's system."""
        raise NotImplementedError

    @property
    def system_name(self) -> str:
        """The name of the connector's system."""
        raise NotImplementedError

    @property
    def settings(self) -> object:
        """The settings that everything of the same system must share; None if they aren't part of the definition."""
        raise NotImplementedError

    @property
    def inside(self) -> str:
        """The text, for people, of the thing in the system that is read."""
        raise NotImplementedError

    @property
    def identifier(self) -> str:
        """The connector's name for people: its system and the thing in it that is read."""
        return f"[{self.kind}: {self.system_name}]({self.inside})"

    @property
    def format_name(self) -> str | None:
        """The name of the format that the rows are in; None for tables."""
        match getattr(self, "format", None):
            case SchemaRegistry(format=found):
                return str(found)
            case CSVFormat():
                return "csv"
            case str() as found:
                return found
            case _:
                return None

    @property
    def reader_class(self) -> str:
        """The class with which a server reads this source, as "module:class"; empty if servers don't read it."""
        return self.format_readers.get(self.format_name or "", self.reader)

    @property
    def cdc(self) -> frozenset[str]:
        """The values of cdc with which the rows can be read."""
        return PLAIN_CDC

    def unreadable(self) -> str:
        """Return why the server can't read this source; empty if it can."""
        if self.settings is None:
            return f"no {self.kind} is registered under this name on the server"
        if self.library and not is_installed(self.library[0]):
            return self._lacks(*self.library)
        if not self.read_formats:
            return f"the server doesn't read {self.kind} yet; use Kafka, or post to a webhook"
        if self.format_name in self.read_formats:
            return ""
        formats = ", ".join(map(str, self.read_formats))
        return f'the server reads {self.kind} in the format {formats} only so far; use format="{self.read_formats[0]}"'

    @staticmethod
    def _lacks(module: str, extra: str) -> str:
        return f"the server lacks the library {module}; install it there with: pip install 'caraway[{extra}]'"

    def unwritable(self) -> str:
        """Return why the server can't write this sink; empty if it can."""
        if self.settings is None:
            return f"no {self.kind} is registered under this name on the server"
        if self.writer and self.library and not is_installed(self.library[0]):
            return self._lacks(*self.library)
        return "" if self.writer else f"the server doesn't write {self.kind} yet; leave it out, or to another env"

    def target(self, suffix: str) -> str:
        """Return the name of the thing in the system that a sink writes, for people.

        Args:
            suffix: The ending that keeps branches and versions of a dataset apart, for things that the sink creates.
        """
        del suffix
        return self.identifier

    def check_source(self, where: str) -> None:
        """Raise `CommitError`, with `where` before its text, if a source can't be like this."""

    def check_sink(self, where: str) -> None:
        """Raise `CommitError`, with `where` before its text, if a sink can't be like this."""


# The classes of connectors by name. `dataclass(slots=True)` makes a second class from each class, so
# `__init_subclass__` runs for both. The second class, which is the one in use, replaces the first here.
CONNECTORS: dict[str, type[Connector]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConnector(Connector):
    """Rows that clients post to `endpoint` of the webhook `name`, readable for `retention_us`."""

    name: str
    endpoint: str
    retention_us: int

    format: ClassVar = "json"
    cdc: ClassVar = ENVELOPE_CDC
    kind: ClassVar = WEBHOOK
    read_formats: ClassVar = ("json",)

    @property
    def system_name(self) -> str:
        """The name of the webhook."""
        return self.name

    @property
    def settings(self) -> int:
        """The retention, which is that of the webhook."""
        return self.retention_us

    @property
    def inside(self) -> str:
        """The endpoint, for people."""
        return f"endpoint={self.endpoint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemConnector(Connector):
    """A connector of an external system."""

    system: System | RegisteredSystem

    @property
    def kind(self) -> str:
        """The kind of the connector's system."""
        return self.system.kind

    @property
    def system_name(self) -> str:
        """The name of the connector's system."""
        return self.system.name

    @property
    def settings(self) -> System | None:
        """The system; None if it is registered on the server."""
        return None if isinstance(self.system, RegisteredSystem) else self.system


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnector(SystemConnector):
    """A topic. `format` is "json" or a registry's format; another text is refused at commit."""

    system: KafkaSystem | RegisteredSystem
    topic: str
    format: str | SchemaRegistry = "json"

    reader: ClassVar = "caraway.dataplane.sources.kafka:KafkaReader"
    read_formats: ClassVar = ("json", *RegistryFormat)
    writer: ClassVar = "caraway.dataplane.sinks.kafka:KafkaWriter"

    @property
    def inside(self) -> str:
        """The topic and its format, for people."""
        return f"topic={self.topic}, format={self.format_name}"

    @property
    def cdc(self) -> frozenset[str]:
        """The values of cdc with which the rows can be read."""
        return PLAIN_CDC if self.format_name == RegistryFormat.PROTOBUF else ENVELOPE_CDC

    def check_source(self, where: str) -> None:
        """Check the format and the kind of the registry."""
        if isinstance(self.format, str) and self.format != "json":
            raise CommitError(f'{where}: the format is "json", Avro(...) or Protobuf(...), not {self.format!r}')
        if isinstance(self.format, SchemaRegistry) and self.format.registry != "confluent":
            raise CommitError(f'{where}: the registry is "confluent", not {self.format.registry!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Connector(SystemConnector):
    """Objects of a bucket below `prefix`; the rest of their keys matches `suffix` (None: any).

    `format` is "json", "parquet", "delta", "iceberg", "hudi" or CSV. An object whose path has a time holds rows from up
    to `spread_us` around it.
    """

    system: S3System | RegisteredSystem
    bucket: str
    prefix: str
    suffix: str | None = None
    format: str | CSVFormat
    presorted: bool = False
    spread_us: int | None = None

    reader: ClassVar = FILES_READER
    format_readers: ClassVar = TABLE_READERS
    read_formats: ClassVar = ("csv", "json", "parquet", "delta", "iceberg", "hudi")
    container_word: ClassVar = "bucket"
    writer: ClassVar = "caraway.dataplane.sinks.delta:DeltaWriter"

    @property
    def container(self) -> str:
        """The bucket."""
        return self.bucket

    def unreadable(self) -> str:
        """Return why the server can't read this source; empty if it can."""
        by_role = isinstance(self.system, S3System) and self.system.role_arn is not None
        if by_role and self.format in {"delta", "hudi"}:
            table = f"a {str(self.format).capitalize()} table"
            return f"{table} is opened by keys or as the server that reads, not by a role; leave role_arn out"
        return SystemConnector.unreadable(self) or unreadable_table(self.format, self.suffix)

    def target(self, suffix: str) -> str:
        """Return the address of the table that a sink writes."""
        return f"s3://{self.bucket}/{self.table_prefix(suffix)}"

    def table_prefix(self, suffix: str) -> str:
        """Return the beginning of the keys of the table that a sink writes."""
        return f"{self.prefix.rstrip('/')}{suffix}"

    @property
    def inside(self) -> str:
        """The bucket and the prefix, for people."""
        return f"bucket={self.bucket},prefix={self.prefix}"

    @property
    def cdc(self) -> frozenset[str]:
        """The values of cdc with which the rows can be read."""
        return TABLE_CDC.get(self.format_name or "", ENVELOPE_CDC)

    @property
    def library(self) -> tuple[str, str] | tuple[()]:  # type: ignore[override]  # only some formats need one
        """The library that the reader of the format needs."""
        return TABLE_LIBRARIES.get(self.format_name, ())

    def check_source(self, where: str) -> None:
        """Check that the bucket is opened in one way."""
        if isinstance(self.system, RegisteredSystem):
            return
        key, secret = self.system.access_key_id, self.system.secret_access_key
        if (key is None) != (secret is None):
            there, missing = ("key", "secret") if secret is None else ("secret", "key")
            raise CommitError(f"{where}: an access {there} is given without the {missing}; give both or none")
        if key is not None and self.system.role_arn is not None:
            raise CommitError(f"{where}: keys and role_arn are given; S3 is opened by one of them")

    def check_sink(self, where: str) -> None:
        """Check that one table is written, and that no keys and no role are given, which the writer doesn't use."""
        if self.suffix:
            raise CommitError(f"{where}: a sink writes one table, at a prefix; leave {self.suffix!r} out of its path")
        system = self.system
        if not isinstance(system, RegisteredSystem) and (
            system.access_key_id or system.secret_access_key or system.role_arn
        ):
            raise CommitError(f"{where}: S3 is written as the worker that writes; leave keys and role out")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConnector(SystemConnector):
    """Files of a folder, or objects of a bucket or container, below `prefix`; the rest of their paths matches `suffix`.

    `container` is the folder, bucket or container. The other fields are those of `S3Connector`; `format` is "json",
    "parquet", "avro", "delta", "iceberg", "hudi" or CSV.
    """

    system: FilesSystem | GCSSystem | AzureSystem | RegisteredSystem
    container: str
    prefix: str
    suffix: str | None = None
    format: str | CSVFormat
    presorted: bool = False
    spread_us: int | None = None

    reader: ClassVar = FILES_READER
    format_readers: ClassVar = TABLE_READERS
    read_formats: ClassVar = ("csv", "json", "parquet", "avro", "delta", "iceberg", "hudi")

    def unreadable(self) -> str:
        """Return why the server can't read this source; empty if it can."""
        store = STORE_LIBRARIES.get(self.kind)
        if self.settings is not None and store is not None and not is_installed(store[0]):
            return self._lacks(*store)
        return SystemConnector.unreadable(self) or unreadable_table(self.format, self.suffix)

    @property
    def container_word(self) -> str:
        """The name by which the system calls the thing that holds files: a folder, a bucket or a container."""
        words = {FilesSystem.kind: "folder", GCSSystem.kind: "bucket", AzureSystem.kind: "container"}
        return words.get(self.kind, "container")

    @property
    def inside(self) -> str:
        """The container and the prefix, for people."""
        return f"{self.container_word}={self.container},prefix={self.prefix}"

    @property
    def cdc(self) -> frozenset[str]:
        """The values of cdc with which the rows can be read."""
        return TABLE_CDC.get(self.format_name or "", ENVELOPE_CDC)

    @property
    def library(self) -> tuple[str, str] | tuple[()]:  # type: ignore[override]  # only some formats need one
        """The library that the reader of the format needs."""
        return TABLE_LIBRARIES.get(self.format_name, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConnector(SystemConnector):
    """A table, or a collection of a document store, read in the order of the column `cursor`."""

    system: TableSystem | RegisteredSystem
    table: str
    cursor: str | None

    @property
    def reader(self) -> str:  # type: ignore[override]  # a table's reader is that of its system
        """The class with which a server reads the table; empty if it can't."""
        return "" if isinstance(self.system, RegisteredSystem) else self.system.reader

    @property
    def writer(self) -> str:  # type: ignore[override]  # as above
        """The class with which a server writes the table; empty if it can't."""
        return "" if isinstance(self.system, RegisteredSystem) else self.system.writer

    def target(self, suffix: str) -> str:
        """Return the name of the table that a sink writes."""
        quote = self.table[-1:]
        return f"{self.table[:-1]}{suffix}{quote}" if quote in ('"', "`") else self.table + suffix

    @property
    def read_formats(self) -> tuple[str | None, ...]:  # type: ignore[override]  # as above
        """The formats that the reader can read: tables have none."""
        return (None,) if self.reader else ()

    @property
    def library(self) -> tuple[str, str] | tuple[()]:  # type: ignore[override]  # as above
        """The library that the reader needs."""
        return () if isinstance(self.system, RegisteredSystem) else self.system.library

    @property
    def inside(self) -> str:
        """The table, for people."""
        return f"table={self.table}"

    def unreadable(self) -> str:
        """Return why the server can't read this table; empty if it can."""
        return Connector.unreadable(self) or (
            "" if isinstance(self.system, RegisteredSystem) else self.system.unreadable()
        )

    def check_source(self, where: str) -> None:
        """Check that there is a cursor."""
        if self.cursor is None:
            raise CommitError(f"{where}: a source needs the cursor, a column that grows with each change of a row")

    def check_sink(self, where: str) -> None:
        """Check that there is no cursor."""
        if self.cursor is not None:
            raise CommitError(f"{where}: a sink has no cursor; leave {self.cursor!r} out")


class StreamStart(StrEnum):
    """Named starts of the first read of a stream."""

    LATEST = "latest"
    TRIM_HORIZON = "trim_horizon"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConnector(SystemConnector):
    """A table whose changes are read from the log of its database: the WAL of Postgres, the binlog of MySQL."""

    system: PostgresSystem | MySQLSystem | RegisteredSystem
    table: str

    reader: ClassVar = "caraway.dataplane.sources.cdc.reader:CaptureReader"
    forget: ClassVar = "caraway.dataplane.sources.cdc.reader:forget"
    read_formats: ClassVar = (None,)
    cdc: ClassVar = frozenset({"native"})
    captures: ClassVar = True

    @property
    def library(self) -> tuple[str, str]:  # type: ignore[override]  # a log's library is that of its system
        """The library that the reader needs."""
        return ("pymysqlreplication", "mysql") if self.kind == MySQLSystem.kind else ("psycopg", "postgres")

    @property
    def inside(self) -> str:
        """The table, for people."""
        return f"table={self.table}"

    def check_sink(self, where: str) -> None:
        """Refuse sinks: a log can only be read."""
        raise CommitError(f"{where}: the log of a database can't be written")


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisConnector(SystemConnector):
    """A stream; `start` is a named start of the first read, or an instant of arrival (microseconds)."""

    system: KinesisSystem | RegisteredSystem
    stream_arn: str
    start: StreamStart | int
    format: str = "json"

    cdc: ClassVar = ENVELOPE_CDC
    reader: ClassVar = "caraway.dataplane.sources.kinesis.reader:KinesisReader"
    read_formats: ClassVar = ("json",)
    library: ClassVar = ("boto3", "kinesis")

    @property
    def inside(self) -> str:
        """The stream and its format, for people."""
        return f"stream={self.stream_arn}, format={self.format}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubConnector(SystemConnector):
    """A topic of PubSub."""

    system: PubSubSystem | RegisteredSystem
    topic: str
    format: str = "json"

    reader: ClassVar = "caraway.dataplane.sources.pubsub.reader:PubSubReader"
    read_formats: ClassVar = ("json",)
    library: ClassVar = ("google.pubsub_v1", "pubsub")
    forget: ClassVar = "caraway.dataplane.sources.pubsub.reader:forget"

    @property
    def inside(self) -> str:
        """The topic and its format, for people."""
        return f"topic={self.topic}, format={self.format}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergConnector(SystemConnector):
    """A table of a catalog: its namespace and name, with dots between them."""

    system: IcebergSystem | RegisteredSystem
    table: str

    cdc: ClassVar = TABLE_CDC["iceberg"]
    reader: ClassVar = TABLE_READERS["iceberg"]
    read_formats: ClassVar = (None,)
    library: ClassVar = TABLE_LIBRARIES["iceberg"]
    writer: ClassVar = "caraway.dataplane.sinks.iceberg:IcebergWriter"

    def target(self, suffix: str) -> str:
        """Return the name of the table that a sink writes."""
        return f"{self.table}{suffix}"

    @property
    def inside(self) -> str:
        """The table, for people."""
        return f"table={self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConnector(SystemConnector):
    """The keys of a Redis that begin with a prefix and a colon, one for each row, to which only sinks write.

    `format` is "hash" or "json". A row's key expires `ttl_us` after it was written; None if it never does.
    """

    system: RedisSystem | RegisteredSystem
    prefix: str
    format: str = "hash"
    ttl_us: int | None = None

    library: ClassVar = ("redis", "redis")
    writer: ClassVar = "caraway.dataplane.sinks.redis.writer:RedisWriter"
    needs_keys: ClassVar = True

    def target(self, suffix: str) -> str:
        """Return the prefix of the keys that a sink writes."""
        return f"{self.prefix}{suffix}"

    @property
    def inside(self) -> str:
        """The prefix, for people."""
        return f"prefix={self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPConnector(SystemConnector):
    """An endpoint that takes at most `limit` changes a request."""

    system: HTTPSystem | RegisteredSystem
    endpoint: str
    limit: int | None = None
    headers: tuple[tuple[str, str], ...] = ()

    format: ClassVar = "json"
    writer: ClassVar = "caraway.dataplane.sinks.http:HTTPWriter"

    @property
    def inside(self) -> str:
        """The endpoint, for people."""
        return f"endpoint={self.endpoint}"
