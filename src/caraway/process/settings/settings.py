"""The settings, their defaults and their sources.

From strongest to weakest: arguments of `load_settings`, environment variables (`CARAWAY_KAFKA__HEAP_MB` sets
`kafka.heap_mb`), `caraway.toml` in the data folder, defaults.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from typing_extensions import override

from caraway.process.settings.connectors import ConnectorSettings
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.mistakes import DELIMITER as ENV_DELIMITER
from caraway.process.settings.mistakes import PREFIX as ENV_PREFIX
from caraway.process.settings.mistakes import explanations, unknown_variables
from caraway.process.settings.oidc import OidcSettings
from caraway.process.settings.section import FolderPath, Section, absolute

FILE_NAME = "caraway.toml"
DEFAULT_DATA_DIR = Path("caraway-data")


def _folder(path: str) -> str:
    return str(absolute(Path(path)))


def _postgres_url(url: str) -> str:
    if urlsplit(url).scheme not in {"postgresql", "postgres"}:
        raise ValueError("must look like postgresql://user:password@host:5432/database")
    return url


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


def _objects_url(url: str) -> str:
    return url if "://" in url else str(absolute(Path(url)))


def _spark_master(master: str) -> str:
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise ValueError("must be local[N], spark://host:port, yarn or k8s://…")
    return master


Port = Annotated[int, Field(ge=0, le=65535)]
MemorySize = Annotated[str, Field(pattern=r"^[1-9]\d*[mMgG]$")]


class PostgresSettings(Section):
    """Postgres, which keeps the metadata.

    Attributes:
        url: `postgresql://user:password@host:port/database`; None starts an embedded server.
    """

    url: Annotated[str, AfterValidator(_postgres_url)] | None = None


class SparkSettings(Section):
    """Spark, which runs the jobs.

    Attributes:
        master: Spark master. Real-time mode needs a slot for every task of every job at once, and an idle task
            costs next to nothing: hence many more slots than cores.
        driver_memory: Java heap of the driver, such as `1g`.
        checkpoints: Folder of the jobs' checkpoints, which all engines that share jobs must see, under the same path;
            None is one in the data folder.
        checkpoint_interval_seconds: Seconds between two checkpoints of a job. Each checkpoint pauses its job for a
            third of a second, and a restart replays at most one interval. Spark's real-time mode wants at least 5.
        function_seconds: The most seconds that one call of a user's function with a batch may take; rows for which it
            takes longer become dead letters.
        function_memory_mb: Memory that a user's function may take, in MiB, beyond what its process has with all modules
            loaded.
        conf: More of Spark's own settings, as `name=value`, such as `spark.executor.memory=2g`.
        jars: Jars of the Kafka connector; the stack fills this in for the parts that it starts.
    """

    master: Annotated[str, AfterValidator(_spark_master)] = "local[256]"
    driver_memory: MemorySize = "1g"
    checkpoints: FolderPath | None = None
    checkpoint_interval_seconds: Annotated[int, Field(ge=5)] = 180
    function_seconds: Annotated[float, Field(gt=0)] = 60.0
    function_memory_mb: Annotated[int, Field(ge=64)] = 1024
    conf: tuple[Annotated[str, Field(pattern=r"^spark\.[^=\s]+=.*$")], ...] = ()
    jars: tuple[FolderPath, ...] = ()

    @property
    def processors(self) -> int | None:
        """Return how many processors the tasks share: those of this machine if Spark runs locally; None: unknown."""
        return os.cpu_count() if self.master.startswith("local") else None


class ServerSettings(Section):
    """The HTTP server.

    Attributes:
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; None or 0 chooses a free one and remembers it.
        workers: Processes that answer queries on the port. With more than one, a further one writes the index and does
            all that changes something.
        tokens: True: requests need a token (`caraway tokens create`). False: everybody who reaches the server may do
            everything, which includes running code on it.
        admin_token_file: A file with a token whose bearer may do everything, for as long as the file holds it. The
            stack fills this in for the server that it starts.
        allowed_hosts: Further names by which clients reach the server, `*.example.com` for all below one, `*` for any.
            This machine's name, `localhost`, `host` and addresses need not be listed.
        allowed_origins: Sites whose pages may send requests, such as `https://console.example.com`.
        certificate_file: A file in PEM with the server's certificate, and those of the authorities between it and the
            root; with it the server speaks TLS only (1.2 and later).
        key_file: A file in PEM with the key of that certificate, without a passphrase.
        trusted_proxies: Addresses and networks of proxies, such as `10.0.0.5` or `10.1.0.0/16`, whose headers
            `Forwarded` and `X-Forwarded-…` are believed: on the scheme, the name of the server and the client.
        allow_network_without_tokens: True: a server without tokens may listen on an address that other machines reach.
        extractor_processes: The Python extractors that run at a time, each in a process of its own commit.
        extractor_seconds: The most seconds for one call of an extractor; after it the process is ended and the request
            fails.
        extractor_memory_mb: Memory that an extractor may take, in MiB, beyond what its process has with all modules
            loaded.
        snapshot_seconds: Seconds between two copies of the index into the object store, from which a new server starts;
            0: the index is never copied.
        poll_seconds: Seconds between two looks of the server in Postgres for commits of other processes. Postgres also
            notifies it of each commit at once, but a connection pooler in between may lose the notification.
        request_seconds: The most seconds for a request, from its first byte to its answer; after it the request fails
            (504, or 408 if its body isn't complete).
        requests_memory_mb: Memory that the bodies of all requests under way, and the values made of them, may take
            together, in MiB; beyond it a request is refused (429).
        concurrency_per_token: Requests that one token may have under way at a time; 0: no limit. Without tokens, the
            limit is for all callers together.
        requests_per_second_per_token: Requests that one token may make in a second, and also in a burst; 0: no limit.
        max_lag_records: Rows are refused (429), and sources aren't read, while an index or job that depends on them is
            behind by more records than this and by more than `max_lag_seconds`; 0: they are never refused.
        max_lag_seconds: The bound in seconds, as above; 0: rows are never refused.
        connections: Connections that are open at a time, as far as the system's limit of open files allows.
        heartbeat_seconds: Seconds between two heartbeats that measure the freshness of datasets; 0: none are sent.
    """

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Port | None = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    tokens: bool = True
    admin_token_file: FolderPath | None = None
    allow_network_without_tokens: bool = False
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+)$")], ...] = ()
    allowed_origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/\s*]+/?$")], ...] = ()
    certificate_file: FolderPath | None = None
    key_file: FolderPath | None = Field(default=None, validate_default=True)
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    extractor_processes: Annotated[int, Field(ge=1, le=256)] = 2
    extractor_seconds: Annotated[float, Field(gt=0)] = 10.0
    extractor_memory_mb: Annotated[int, Field(ge=16)] = 1024
    request_seconds: Annotated[float, Field(gt=0)] = 60.0
    requests_memory_mb: Annotated[int, Field(ge=64)] = 256
    concurrency_per_token: Annotated[int, Field(ge=0)] = 1_000
    requests_per_second_per_token: Annotated[float, Field(ge=0)] = 0.0
    # The bounds catch a lag that grows for good, and no burst: five million records are several minutes of work of one
    # index, and more than a run of the demo's benchmark with 1.2 million events writes to one topic.
    max_lag_records: Annotated[int, Field(ge=0)] = 5_000_000
    max_lag_seconds: Annotated[float, Field(ge=0)] = 300.0
    connections: Annotated[int, Field(ge=100, le=1_000_000)] = 16_384
    poll_seconds: Annotated[float, Field(gt=0)] = 1.0
    snapshot_seconds: Annotated[float, Field(ge=0)] = 300.0
    heartbeat_seconds: Annotated[float, Field(ge=0)] = 5.0

    @property
    def url(self) -> str | None:
        """The URL by which a client on this machine finds the server, once the port is known."""
        if not self.port:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 (reads it, binds nothing)
        return f"{'http' if self.certificate_file is None else 'https'}://{host}:{self.port}"

    @field_validator("key_file")
    @classmethod
    def _belongs_to_a_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("certificate_file") is None):
            raise ValueError("it and server.certificate_file are set together, or neither is")
        return value


class SourcesSettings(Section):
    """Sources, from which servers read rows.

    Attributes:
        endpoints: Addresses of systems, by their names in the definitions, that aren't at the address of their cloud:
            such as one's own MinIO for an `S3`, or an emulator for a `PubSub`.
        local_folders: The folders of the server's machine from which sources may read files. Everybody who may commit
            can read all files in them.
        integer_overlap: How many numbers before the last one are read again in each round of a table whose cursor is a
            number. Databases assign numbers before rows become visible, so a row may appear with a smaller number than
            one that was read; it is missed unless the overlap covers it.
        ca_file: A file in PEM with the certificate authorities by which the Kafka brokers (`SASL_SSL`) of sources and
            sinks, and schema registries, are verified; empty: those of the system.
    """

    endpoints: dict[str, str] = Field(default_factory=dict)
    local_folders: tuple[Annotated[str, AfterValidator(_folder)], ...] = ()
    integer_overlap: Annotated[int, Field(ge=0)] = 0
    ca_file: str = ""


class IndexSettings(Section):
    """The index, from which queries read.

    Attributes:
        shards: Number of parts into which the index is divided among the servers; None: each server has all of it. All
            servers of a deployment need the same number, and `kafka.partitions` should be a multiple of it.
        host: Address on which this server serves its shards to others; the default is reachable from this machine only.
        port: The port on which this server serves its shards; 0 chooses a free one.
        address: `host:port` at which other servers reach this one; None: `host` and `port` are that address.
        ca_file: A file in PEM with the authority of all servers' certificates; with it and the two below
            servers read each other's shards by TLS, each with a certificate of that authority.
        certificate_file: A file in PEM with this server's certificate, for the host of `address`.
        key_file: A file in PEM with the key of that certificate, without a passphrase.
        lease_seconds: A server that gives no sign of life for this time loses its shards to others. A server that can't
            reach Postgres goes on answering from its shards for the same time.
    """

    shards: Annotated[int, Field(ge=1, le=1_000)] | None = None
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Port = 0
    address: Annotated[str, Field(pattern=r"^\S+:\d+$")] | None = None
    ca_file: FolderPath | None = None
    certificate_file: FolderPath | None = None
    key_file: FolderPath | None = Field(default=None, validate_default=True)
    lease_seconds: Annotated[float, Field(ge=1)] = 10.0

    @field_validator("key_file")
    @classmethod
    def _belongs_to_a_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if len({value is None, info.data.get("certificate_file") is None, info.data.get("ca_file") is None}) > 1:
            raise ValueError("it, index.certificate_file and index.ca_file are set together, or none is")
        return value


class ArchiveSettings(Section):
    """The archive: the records of all datasets in Delta tables in the object store.

    Attributes:
        enabled: False: the stack runs no archive; offline queries and training sets then have no data.
        seconds: Seconds after which an accepted row is in its table. Small values make many small files, which are
            compacted later.
        topic_days: Days after which records that are in their table are removed from their topic. None: topics keep all
            records.
        replaced_hours: Hours for which a table keeps files that were replaced, since a reader may have begun with them.
            Rows of erased keys stay in these files for so long.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 30.0
    topic_days: Annotated[float, Field(ge=0)] | None = None
    replaced_hours: Annotated[int, Field(ge=0)] = 24


class OfflineSettings(Section):
    """Offline queries, which compute features for many rows as of the rows' times.

    Attributes:
        processes: The most offline queries that a server works on at a time, each in a process of its own; further ones
            wait. 0: this server leaves them to others.
        extractor_seconds: The longest time that a Python extractor may take for some thousands of rows.
        local_files: True: a request may name files of the server's machine as its input or output. Then everybody who
            may query data can read and write every file that the server can.
        endpoints: Host and port of stores beside those of the clouds, such as one's own MinIO, that requests may name
            as `endpoint_override`. The server opens no connection to other hosts for a request.
        own_rights: Addresses, such as `s3://bucket/training`, below which files of requests are read and written with
            the server's own rights. For all others a request needs access keys or a role.
        roles: The ARNs of the roles of AWS that the server may assume for requests that name them.
        memory_mb: The memory, in MiB, for the records that a query reads in its own process. A query that needs more
            runs on Spark.
        spark_master: Spark master of these queries, each of which has a session of its own. `local[N,M]` runs N tasks
            at a time in the query's process, and each up to M times.
        spark_driver_memory: Java heap of these sessions.
        spark_broadcast_mb: Datasets whose records need less memory, in MiB, are read as a whole by each task. Larger
            ones are divided by key.
        spark_records_mb: The records of a dataset that a task of Spark holds in memory, in MiB; it sorts more of them
            on the disk.
        spark_conf: More of Spark's own settings, as `name=value`, such as `spark.executor.memory=2g`.
        kept_days: Days after which the results of a query are removed from the server's object store.
    """

    processes: Annotated[int, Field(ge=0, le=100)] = 1
    extractor_seconds: Annotated[float, Field(gt=0)] = 60.0
    local_files: bool = False
    endpoints: tuple[str, ...] = ()
    own_rights: tuple[str, ...] = ()
    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    memory_mb: Annotated[int, Field(ge=1)] = 4096
    spark_master: Annotated[str, AfterValidator(_spark_master)] = "local[*,3]"
    spark_driver_memory: MemorySize = "1g"
    spark_broadcast_mb: Annotated[int, Field(ge=0)] = 64
    spark_records_mb: Annotated[float, Field(gt=0)] = 64.0
    spark_conf: tuple[Annotated[str, Field(pattern=r"^spark\.[^=\s]+=.*$")], ...] = ()
    kept_days: Annotated[float, Field(gt=0)] = 30.0


class SkewSettings(Section):
    """The skew watch, which computes a sample of served features again from the archive.

    Attributes:
        enabled: False: nothing is computed again.
        rows_per_minute: The most rows of queries that are computed again in a minute; of more, some are drawn.
        seconds: The shortest pause between two passes. A pass takes all rows that have come.
        delay_seconds: Seconds after which a served row is computed again, so that records that came late are known.
        memory_mb: Features of a dataset whose records need more memory, in MiB, aren't computed again.
        kept_days: Days for which counts and samples of mismatches are kept.
    """

    enabled: bool = True
    rows_per_minute: Annotated[float, Field(gt=0)] = 600.0
    seconds: Annotated[float, Field(gt=0)] = 30.0
    delay_seconds: Annotated[float, Field(ge=0)] = 120.0
    memory_mb: Annotated[int, Field(ge=1)] = 512
    kept_days: Annotated[float, Field(gt=0)] = 30.0


class TracesSettings(Section):
    """Traces of requests by OpenTelemetry.

    Attributes:
        url: The address of a collector that takes OTLP over HTTP, such as http://localhost:4318/v1/traces; without it
            nothing is traced.
        share: The share of the requests that are traced, from 0 to 1. Callers may ask for more by `traceparent`.
        service: The name of this deployment in traces.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/.*$")] | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    service: Annotated[str, Field(min_length=1)] = "caraway"


class OpenLineageSettings(Section):
    """Events of OpenLineage, which tell a catalogue of data what is computed from what.

    Attributes:
        url: The address that takes events by `POST`, such as http://marquez:5000/api/v1/lineage; without it none are
            sent.
        api_key: The bearer token of the requests, if the receiver needs one.
        namespace: The name of this deployment in events.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/.*$")] | None = Field(default=None, repr=False)
    api_key: Annotated[str, Field(pattern=r"^[\x21-\x7e]+$")] | None = Field(default=None, repr=False)
    namespace: Annotated[str, Field(min_length=1)] = "caraway"


class DriftSettings(Section):
    """The drift watch, which profiles served features by the hour and compares them with a reference.

    Attributes:
        enabled: False: nothing is profiled.
        seconds: The shortest pause between two passes. A pass takes all rows that have come, or 100,000 of them.
        hours: The hours that are compared for the metrics, up to now.
        false_alarms: The greatest probability that a comparison has any alarm though nothing has changed.
        kept_days: Days for which profiles are kept: eight are enough to compare a day with the one a week before.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 60.0
    hours: Annotated[int, Field(ge=1, le=24 * 366)] = 24
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.001
    kept_days: Annotated[float, Field(gt=0)] = 8.0


class QualitySettings(Section):
    """The quality watch, which checks the rows of datasets against their expectations.

    Attributes:
        enabled: False: nothing is checked.
        seconds: Seconds after which a row is counted, if it came alone.
        kept_days: Days for which counts by time are kept, back from the newest row of a dataset.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 10.0
    kept_days: Annotated[float, Field(gt=0)] = 30.0


class AlertSettings(Section):
    """Alerts, which are lines of the log and requests to a webhook.

    Attributes:
        webhook: The address to which alerts are sent in the form of Alertmanager's API, version 2, such as
            http://alertmanager:9093/api/v2/alerts; None: they are only logged.
    """

    webhook: str | None = None


class SinkSettings(Section):
    """Sinks, to which the changes of datasets are written.

    Attributes:
        names: The name of the platform in what sinks write. "fennel" suits consumers that were made for Fennel: the
            position of a change is in `payload.source.fennel`, and the hash of a row in the column `__fennel_hash__`.
    """

    names: Literal["caraway", "fennel"] = "caraway"


class SecretsSettings(Section):
    """The store of secrets, and its keys.

    Attributes:
        key_file: The file with the deployment's keys, which is created if it doesn't exist; None: `secret.key` in the
            data folder. Servers and engines of one deployment need the same file.
        environment: The variables of the server's environment that definitions may take by `env:NAME`.
        files: The files of the server's machine that definitions may take by `file:/path`, or name in `jdbc_params`;
            never those of the data folder, of /proc or of /sys.
        aws: The ARNs of the secrets of AWS Secrets Manager that the server reads as itself for definitions, and of the
            roles that it may assume to read any secret.
    """

    key_file: FolderPath | None = None
    environment: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    files: tuple[FolderPath, ...] = ()
    aws: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class FunctionSettings(Section):
    """Users' functions, which run in processes that can compute and nothing else (docs/operate/security.md).

    Attributes:
        isolation: "available" isolates functions as far as the system can and logs what it lacks, "required" refuses to
            run them if it lacks anything, "off" runs them with all rights of the platform.
        user: The number of the user that they run as if the platform runs as root; None chooses an unused one.
        network: True: they may open connections.
        processes: True: they may start processes.
        readable: Files and folders that they may read, such as a model's.
        environment: Names of environment variables of the platform that they may see.
    """

    isolation: Literal["required", "available", "off"] = "available"
    user: Annotated[int, Field(ge=1, le=2**31)] | None = None
    network: bool = False
    processes: bool = False
    readable: tuple[FolderPath, ...] = ()
    environment: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class JarsSettings(Section):
    """The source of the Java libraries.

    Attributes:
        ivy_settings: An Ivy settings file that names your mirror; None uses Maven Central.
    """

    ivy_settings: FolderPath | None = None


class _Environment(EnvSettingsSource):
    """The environment; a text that isn't JSON stays a text, so that the mistake is explained with its variable."""

    @override
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class Settings(BaseSettings):
    """All settings of one deployment; frozen.

    Attributes:
        data_dir: Folder of all that a deployment keeps.
        cache_dir: Folder of files that can be fetched again (jars), shared by deployments.
        objects: The object store, `s3://bucket/prefix` or a folder; None is a folder in the data folder.
        log_level: How much the parts write into their logs.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        env_ignore_empty=True,
        nested_model_default_partial_update=True,
    )

    data_dir: FolderPath = Field(default=DEFAULT_DATA_DIR, validate_default=True)
    cache_dir: FolderPath = Field(default=Path("~/.cache/caraway"), validate_default=True)
    objects: Annotated[str, AfterValidator(_objects_url)] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    spark: SparkSettings = SparkSettings()
    server: ServerSettings = ServerSettings()
    oidc: OidcSettings = OidcSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    sources: SourcesSettings = SourcesSettings()
    index: IndexSettings = IndexSettings()
    archive: ArchiveSettings = ArchiveSettings()
    offline: OfflineSettings = OfflineSettings()
    drift: DriftSettings = DriftSettings()
    skew: SkewSettings = SkewSettings()
    quality: QualitySettings = QualitySettings()
    alerts: AlertSettings = AlertSettings()
    sinks: SinkSettings = SinkSettings()
    traces: TracesSettings = TracesSettings()
    openlineage: OpenLineageSettings = OpenLineageSettings()
    secrets: SecretsSettings = SecretsSettings()
    functions: FunctionSettings = FunctionSettings()
    jars: JarsSettings = JarsSettings()

    @property
    def key_file(self) -> Path:
        """The file with the deployment's keys."""
        return self.secrets.key_file or self.data_dir / "secret.key"

    @property
    def objects_url(self) -> str:
        """The URL or folder of the object store."""
        return self.objects or str(self.data_dir / "objects")

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The settings file lies in the data folder. So that folder is determined before the file is read, from the
        # argument, the environment or the default.
        environment = _Environment(settings_cls)
        data_dir = init_settings().get("data_dir") or environment().get("data_dir") or DEFAULT_DATA_DIR
        file = absolute(Path(data_dir)) / FILE_NAME
        _check_owner(file)
        return init_settings, environment, TomlConfigSettingsSource(settings_cls, toml_file=file)

    def environment(self) -> dict[str, str]:
        """Return the variables that make `load_settings` in another process return these settings."""
        return dict(_flat(self.model_dump(mode="json"), ENV_PREFIX))


def _check_owner(file: Path) -> None:
    """Raise `ConfigurationError` for a file of another user, whose settings could run programs as this one."""
    if sys.platform != "win32" and file.exists() and (owner := file.stat().st_uid) not in {os.geteuid(), 0}:
        raise ConfigurationError(
            f"{file} belongs to another user (number {owner}), and its settings could run programs with your rights: "
            f"choose another data folder (--data, CARAWAY_DATA_DIR), or make the file yours (chown {os.geteuid()})"
        )


def load_settings(data_dir: Path | None = None) -> Settings:
    """Read the settings.

    Args:
        data_dir: The data folder, if an argument of the command chooses it.

    Raises:
        ConfigurationError: A value is wrong or a setting unknown; the text names all such settings and their variables.
    """
    chosen: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    mistakes = list(unknown_variables(Settings))
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        file = absolute(data_dir or Path(os.environ.get(f"{ENV_PREFIX}DATA_DIR") or DEFAULT_DATA_DIR)) / FILE_NAME
        raise ConfigurationError("\n".join([*mistakes, *explanations(Settings, error, file)])) from error
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{FILE_NAME} in the data folder can't be read: {error}") from error
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return settings


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        key = prefix + name.upper()
        match value:
            case None:
                continue
            case dict():
                yield from _flat(value, key + ENV_DELIMITER)
            case list():
                yield key, to_json(value).decode()
            case _:
                yield key, str(value)
