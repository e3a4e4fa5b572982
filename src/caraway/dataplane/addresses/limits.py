"""The limits of sources and sinks: everybody who may commit defines them, and the server runs them.

A connector may use the server's own identity only below the addresses of `connectors.own_rights`, and by the roles of
`connectors.roles`. It reaches only what `caraway.dataplane.addresses.networks` allows, and never what the platform
itself keeps.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from caraway.dataplane.addresses.networks import Networks, Service
from caraway.dataplane.addresses.reach import Hold
from caraway.errors import UnavailableError
from caraway.graph.connectors import (
    Connector,
    FilesConnector,
    IcebergConnector,
    KafkaConnector,
    KinesisConnector,
    S3Connector,
    TableConnector,
)
from caraway.graph.plan.model import is_own_topic
from caraway.graph.systems import AzureSystem, GCSSystem, RedshiftSystem, S3System
from caraway.process.confinement.configured import confinement_of_connectors
from caraway.process.confinement.policy import Confinement
from caraway.process.settings.settings import Settings

_KAFKAS_TOPICS = re.compile(r"__(consumer_offsets|transaction_state|cluster_.*)")
# The permitted names of buckets and containers, and of Azure's accounts. Each name becomes a part of an address, so one
# with other characters could lead to another host.
_CONTAINER, _ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{1,221}"), re.compile(r"[a-z0-9]{3,24}")
_DEFAULT_PORTS = {"postgresql": 5432, "postgres": 5432}
_SPARK_MASTER = 7077
# The environment variables from which the libraries of clouds take the addresses of systems.
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "PUBSUB_EMULATOR_HOST", "STORAGE_EMULATOR_HOST")


@dataclass(frozen=True, slots=True)
class Claim:
    """A use of the server's own identity.

    Attributes:
        address: The address that is read or written as the server; None if a role is assumed.
        role: The ARN of the role.
    """

    address: str | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorLimits:
    """The limits of sources and sinks; the default has none, for tests of single readers and writers.

    Attributes:
        networks: The networks that they may reach; None: all.
        own_rights: Addresses below which the server's identity is used; None: all.
        roles: The roles that the server may assume.
        endpoints: The names of systems whose addresses the operator has set.
        objects_url: The platform's own object store.
        data_dir: The platform's own folder.
        confinement: The other limits of the process in which a connector runs.
        memory_mb: The memory that this process may use, in MiB, beyond that of its program; None: all.
    """

    networks: Networks | None = None
    own_rights: tuple[str, ...] | None = None
    roles: tuple[str, ...] = ()
    endpoints: frozenset[str] = frozenset()
    objects_url: str = ""
    data_dir: Path | None = None
    confinement: Confinement = Confinement(network=True)  # noqa: RUF009 (it is frozen)
    memory_mb: int | None = None

    def hold(self, connector: Connector, *, writes: bool = False) -> Callable[[], AbstractContextManager[None]]:
        """Return what holds a thread to these limits while it uses a connector.

        Raises `UnavailableError` if the connector may not be used at all; the text says what to change.
        """
        if self.networks is None:
            return nullcontext
        self.check(connector, writes=writes)
        claims = list(claims_of(connector, writes=writes, endpoints=self.endpoints))
        return Hold(self.networks, metadata=bool(claims), own_rights=self.own_rights).held

    def check(self, connector: Connector, *, writes: bool = False) -> None:
        """Check that a connector may be used; raises `UnavailableError` as `hold` does."""
        if self.own_rights is None:
            return
        where = connector.identifier
        match connector:
            case KafkaConnector(topic=topic) if is_own_topic(topic) or _KAFKAS_TOPICS.fullmatch(topic):
                raise UnavailableError(f"{where}: the topic {topic} is one of the platform's own or of Kafka itself")
            case S3Connector() | FilesConnector():
                self._check_files(connector, where)
            case _:
                pass
        for claim in claims_of(connector, writes=writes, endpoints=self.endpoints):
            if claim.role is not None and claim.role not in self.roles:
                raise UnavailableError(
                    f"{where}: the server assumes the role {claim.role} only if the operator lists it in the setting "
                    "connectors.roles"
                )
            if claim.address is not None and not is_below(claim.address, self.own_rights):
                raise UnavailableError(withheld(where, claim.address))

    def _check_files(self, connector: S3Connector | FilesConnector, where: str) -> None:
        prefix = f"{connector.prefix}/{connector.suffix or ''}"
        if ".." in unquote(prefix).replace("\\", "/").split("/"):
            raise UnavailableError(f"{where}: a path must not have the part '..'")
        address = _address_of(connector)
        if address is None:
            folder = Path(connector.container).resolve()
            if self.data_dir is not None and folder.is_relative_to(self.data_dir.resolve()):
                raise UnavailableError(f"{where}: the folder is the platform's own")
            return
        system = connector.system
        if not _CONTAINER.fullmatch(connector.container):
            raise UnavailableError(f"{where}: {connector.container!r} is no name of a {connector.container_word}")
        if isinstance(system, AzureSystem) and not _ACCOUNT.fullmatch(system.account_name):
            raise UnavailableError(f"{where}: {system.account_name!r} is no name of a storage account")
        own = _plain_objects(self.objects_url)
        if own and (is_below(address, [own]) or is_below(own, [address])):
            raise UnavailableError(
                f"{where}: the platform's own objects are there, at {own}; keep the prefix beside them, and end it "
                "with a slash"
            )


UNLIMITED = ConnectorLimits()


class Holder:
    """Holds the thread that reads a source or writes a sink to its limits, each time that it is called.

    Refusals are remembered between calls, since libraries connect in the background.
    """

    def __init__(self, limits: ConnectorLimits, connector: Connector, *, writes: bool = False) -> None:
        """Prepare; nothing is checked before the first call."""
        self._make = partial(limits.hold, connector, writes=writes)
        self._hold: Callable[[], AbstractContextManager[None]] | None = None

    def __call__(self) -> AbstractContextManager[None]:
        """Return what holds the thread; raises `UnavailableError` if the connector may not be used."""
        if self._hold is None:
            self._hold = self._make()
        return self._hold()


def withheld(where: str, address: str) -> str:
    """Return the words for an address that would be used with the server's own identity."""
    return (
        f"{where}: the definition has no keys for {address}, and the server's own identity is used only below the "
        "addresses of the setting connectors.own_rights; give keys, or have the operator list the address"
    )


def is_below(url: str, allowed: Sequence[str]) -> bool:
    """Return whether an address is one of some others, or below one."""
    plain = url.rstrip("/")
    return any(plain == each or plain.startswith(f"{each}/") for each in (given.rstrip("/") for given in allowed))


def claims_of(connector: Connector, *, writes: bool, endpoints: frozenset[str] = frozenset()) -> Iterator[Claim]:
    """Yield the uses of the server's identity that a connector makes.

    Catalogs of Iceberg name the addresses of their files only when they are read (`caraway.dataplane.objects.iceberg`).
    """
    match connector:
        case S3Connector(system=S3System() as s3):
            has_keys = s3.access_key_id is not None and s3.secret_access_key is not None
            if s3.role_arn is not None and not writes:
                yield Claim(role=s3.role_arn)
            elif writes or not has_keys:
                # A sink has no credentials of its own, so it uses the server's identity.
                yield Claim(_address_of(connector))
        case FilesConnector(system=GCSSystem(name=name)):
            if name not in endpoints:
                yield Claim(_address_of(connector))
        case FilesConnector(system=AzureSystem(account_key=None)):
            yield Claim(_address_of(connector))
        case KinesisConnector(system=system) if hasattr(system, "role_arn"):
            yield Claim(role=system.role_arn)
        case TableConnector(system=RedshiftSystem(s3_access_role_arn=str(role))):
            yield Claim(role=role)
        case IcebergConnector():
            return
        case _:
            return


def _address_of(connector: S3Connector | FilesConnector) -> str | None:
    """Return the address of what a connector reads or writes; None if it is a folder of this machine."""
    match connector.system:
        case S3System():
            container = f"s3://{connector.container}"
        case GCSSystem():
            container = f"gs://{connector.container}"
        case AzureSystem(account_name=account):
            container = f"az://{account}/{connector.container}"
        case _:
            return None
    return f"{container}/{connector.prefix.lstrip('/')}"


def _plain_objects(url: str) -> str:
    """Return the address of the platform's own objects as `_address_of` writes those of connectors; empty if local."""
    parts = urlsplit(url)
    if parts.scheme in {"s3", "s3a"}:
        return f"s3://{parts.netloc}{parts.path}"
    if parts.scheme in {"gs", "gcs"}:
        return f"gs://{parts.netloc}{parts.path}"
    if parts.scheme in {"abfs", "abfss", "az", "adl"} and "@" in parts.netloc:
        container, _, host = parts.netloc.partition("@")
        return f"az://{host.partition('.')[0]}/{container}{parts.path}"
    return ""


def limits_of(settings: Settings, brokers: Callable[[], Iterable[tuple[str, int]]]) -> ConnectorLimits:
    """Return the limits that the settings of a server have.

    `brokers` returns the hosts and ports of all brokers that are known, of which the settings may name only some.
    """
    given = settings.connectors
    # An operator may set the address of a system by a setting, or by an environment variable of its library. Connectors
    # may reach these addresses.
    named = [*settings.sources.endpoints.values(), *(os.environ[name] for name in ENDPOINTS if name in os.environ)]
    networks = Networks(
        [ip_network(text) for text in given.networks],
        given.loopback,
        lambda: services_of(settings, brokers()),
        [place for address in named if (place := _place(address)) is not None],
    )
    return ConnectorLimits(
        networks,
        given.own_rights,
        given.roles,
        frozenset(settings.sources.endpoints),
        settings.objects_url,
        settings.data_dir,
        confinement_of_connectors(settings),
        given.memory_mb,
    )


def services_of(settings: Settings, brokers: Iterable[tuple[str, int]]) -> Iterator[Service]:
    """Yield the platform's own services, as far as this server knows where they are."""
    server, index, shared = settings.server, settings.index, settings.connectors.own_services
    record = settings.data_dir / "run" / "stack.json"
    try:
        ports: dict[str, int] = json.loads(record.read_bytes()).get("ports", {})
    except (OSError, ValueError):
        ports = {}
    if server.port:
        yield Service("server", _listening(server.host), server.port)
    if index.port:
        yield Service("index", _listening(index.host), index.port)
    master = urlsplit(settings.spark.master)
    if master.scheme == "spark" and master.hostname:
        yield Service("Spark", master.hostname, master.port or _SPARK_MASTER)
    for address in (settings.kafka.bootstrap_servers or "").split(","):
        host, _, port = address.rpartition(":")
        if host:
            yield Service("Kafka", host, int(port), shared and int(port) not in ports.values())
    for host, known in brokers:
        yield Service("Kafka", host, known, shared and known not in ports.values())
    if settings.postgres.url is not None:
        database = urlsplit(settings.postgres.url)
        port_of = database.port or _DEFAULT_PORTS[database.scheme]
        if database.hostname:
            yield Service("Postgres", database.hostname, port_of, shared and port_of not in ports.values())
    for name, number in ports.items():
        yield Service(f"port of {name}", "127.0.0.1", number)


def _listening(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (reads it, binds nothing)


def _place(address: str) -> tuple[str, int] | None:
    """Return the host and the port of an address of `sources.endpoints`; None if it has none."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 443)
    except ValueError:
        return None
    return None if parts.hostname is None else (parts.hostname, port)
