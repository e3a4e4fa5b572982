"""Attacks on a running server by a committer: what connectors reach, and with whose identity they do."""

# mypy: disable-error-code="attr-defined"

import secrets
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import pytest

from caraway import Client, Dataset, dataset, field, meta, pipeline
from caraway.connectors import (
    GCS,
    HTTP,
    S3,
    Azure,
    Certificate,
    Files,
    Iceberg,
    Kafka,
    Kinesis,
    Mongo,
    MySQL,
    Postgres,
    Redis,
    sink,
    source,
)
from caraway.connectors.data_connector import DataConnector
from caraway.errors import RemoteError
from caraway.lib import inputs
from caraway.process.settings.connectors import ConnectorSettings, SourcesSettings
from tests.integration.databases import new_database
from tests.integration.server.server_process import ServerProcess
from tests.integration.server.test_open_doors import copied_to, rows_of
from tests.services.hostile import Heard, http_service

METADATA = "169.254.169.254"
OWN_KEY = f"AKIA{secrets.token_hex(8).upper()}"
LOGIN: dict[str, Any] = {"username": "mallory", "password": "x"}
ROLE = "arn:aws:iam::123456789012:role/made-up"


@pytest.fixture(scope="module")
def store() -> Iterator[Heard]:
    """Yield a store that the operator has named as that of a system, and which hears the server's identity."""
    with http_service({}) as heard:
        yield heard


@pytest.fixture(scope="module")
def closed(
    kafka: str, postgres_server: str, store: Heard, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Yield a server with the default limits of connectors, whose environment has an identity at AWS."""
    with new_database(postgres_server) as database, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", OWN_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")
        process = ServerProcess(
            tmp_path_factory.mktemp("reach"),
            kafka=kafka,
            postgres=database,
            connectors=ConnectorSettings(),
            sources=SourcesSettings(endpoints={"lake": store.address}, local_folders=("/",)),
        )
        process.start()
        yield process
        process.stop()


def tried(server: ServerProcess, definition: list[Dataset]) -> str:
    """Return the error of a trial of a source."""
    with Client(server.settings.server.url, branch="main") as client:
        (found,) = client.try_sources("Loot", definition)
    assert not found["rows"]
    return str(found["error"])


def refused(server: ServerProcess, definition: list[Dataset], *, trial: bool = True) -> str:
    """Return the error of a commit, and of a trial of a source."""
    with Client(server.settings.server.url, branch="main") as client:
        if trial:
            (tried,) = client.try_sources("Loot", definition)
            assert not tried["rows"]
            assert tried["error"]
        with pytest.raises(RemoteError) as error:
            client.commit("evil", definition)
        if trial:
            # The texts of libraries have times and numbers in them.
            assert tried["error"][:60] in str(error.value)
        return str(error.value)


def brokers(address: str) -> Kafka:
    return Kafka(name="evil", bootstrap_servers=address, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


def sources(host: str, port: int) -> dict[str, DataConnector]:
    """Return a connector of each library, which reads from an address of the committer's."""
    at: dict[str, Any] = {"name": "evil", "host": host, "port": port, "db_name": "loot", **LOGIN}
    return {
        "Kafka": brokers(f"{host}:{port}").topic("loot"),
        "Postgres": Postgres(**at).table("loot", cursor="at"),
        "log of Postgres": Postgres(**at).table("loot", cursor=None),
        "MySQL": MySQL(**at).table("loot", cursor="at"),
        "Iceberg": Iceberg(name="evil", uri=f"http://{host}:{port}").table("ns.loot"),
        "catalog in Postgres": Iceberg(name="evil", uri=f"postgresql://m:x@{host}:{port}/loot").table("ns.loot"),
        "catalog in MySQL": Iceberg(name="evil", uri=f"mysql://m:x@{host}:{port}/loot").table("ns.loot"),
        "Mongo": Mongo(name="evil", host=f"{host}:{port}", db_name="loot", **LOGIN).collection("loot", cursor="at"),
    }


def reading(kind: str, connector: DataConnector) -> list[Dataset]:
    if kind != "log of Postgres":
        return [rows_of(connector, every="1h") if kind != "Kafka" else rows_of(connector)]

    @meta(owner="mallory@example.com")
    @source(connector, disorder="1d", cdc="native")
    @dataset(index=True)
    class Loot:
        pot: int = field(key=True)
        at: datetime = field(timestamp=True)

    return [Loot]


KINDS = list(sources("localhost", 1))


@pytest.fixture
def own() -> Iterator[tuple[socket.socket, int]]:
    """Yield a service of the server's machine, to which nobody may connect, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, listening.getsockname()[1]
        listening.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("kind", KINDS)
def test_no_source_reaches_the_server_s_own_machine(
    closed: ServerProcess, own: tuple[socket.socket, int], kind: str
) -> None:
    said = refused(closed, reading(kind, sources("localhost", own[1])[kind]))
    assert "connectors.loopback=true" in said


@pytest.mark.parametrize("kind", KINDS)
def test_no_source_reaches_a_cloud_s_metadata_service(closed: ServerProcess, kind: str) -> None:
    assert "where clouds tell a machine's identity" in tried(closed, reading(kind, sources(METADATA, 80)[kind]))


def sinks(host: str, port: int) -> dict[str, DataConnector]:
    at: dict[str, Any] = {"name": "evil", "host": host, "port": port, "db_name": "loot", **LOGIN}
    ca = Path(certifi.where()).read_text()
    web = HTTP(name="evil", host=f"http://{host}:{port}", healthz="/latest/meta-data", ca_cert=Certificate(ca))
    return {
        "HTTP": web.path("/changes"),
        "Kafka": brokers(f"{host}:{port}").topic("loot"),
        "Postgres": Postgres(**at).table("loot", cursor=None),
        "Redis": Redis(name="evil", host=host, port=port, **LOGIN).keys("loot"),
    }


def written(kind: str, connector: DataConnector) -> list[Dataset]:
    if kind == "Postgres":
        return copied_to(connector)
    given, _ = copied_to(S3(name="own").bucket("b", prefix="p", format="delta"))
    return [given, _changes(connector, "debezium" if kind in {"HTTP", "Kafka"} else None, given)]


def _changes(connector: DataConnector, cdc: str | None, given: Dataset) -> Dataset:
    how: dict[str, Any] = {"cdc": cdc} if cdc else {"how": "incremental"}

    @meta(owner="mallory@example.com")
    @sink(connector, **how)
    @dataset(index=True)
    class Loot:
        pot: int = field(key=True)
        at: datetime = field(timestamp=True)

        @pipeline
        @inputs(given)
        def copy(cls, given):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (as users write it)
            return given.groupby("pot").latest()

    return Loot


@pytest.mark.parametrize("kind", list(sinks("localhost", 1)))
def test_no_sink_reaches_the_server_s_own_machine_or_a_metadata_service(
    closed: ServerProcess, own: tuple[socket.socket, int], kind: str
) -> None:
    said = refused(closed, written(kind, sinks("localhost", own[1])[kind]), trial=False)
    assert "connectors.loopback=true" in said
    said = refused(closed, written(kind, sinks(METADATA, 80)[kind]), trial=False)
    assert "where clouds tell a machine's identity" in said


def test_the_platform_s_own_services_are_no_sources(closed: ServerProcess) -> None:
    settings = closed.settings
    kafka, postgres = str(settings.kafka.bootstrap_servers), urlsplit(str(settings.postgres.url))
    loot = Postgres(
        name="evil",
        host=str(postgres.hostname),
        port=postgres.port or 5432,
        db_name=postgres.path[1:],
        username=postgres.username or "",
        password=postgres.password or "",
    )
    found = [
        tried(closed, [rows_of(brokers(kafka).topic("loot"))]),
        tried(closed, [rows_of(loot.table("commits", cursor="at"), every="1h")]),
        tried(closed, [rows_of(Iceberg(name="evil", uri=str(settings.server.url)).table("ns.loot"), every="1h")]),
    ]
    for said, service in zip(found, ("Kafka", "Postgres", "server"), strict=True):
        assert f"the platform's own {service}" in said


def test_topics_of_the_platform_are_no_sources_whichever_way_its_brokers_are_named(closed: ServerProcess) -> None:
    for topic in ("Purchase.0123456789ab", "Purchase.0123456789ab.3", "caraway.dead-letters", "__consumer_offsets"):
        said = tried(closed, [rows_of(brokers("kafka.example.com:9092").topic(topic))])
        assert "one of the platform's own or of Kafka itself" in said


@pytest.mark.parametrize("form", ["json", "delta"])
def test_a_prefix_leads_out_of_no_bucket_and_no_folder(closed: ServerProcess, tmp_path: Path, form: str) -> None:
    doors: list[tuple[DataConnector, str]] = [
        (S3(name="lake").bucket("raw", prefix="a/../../private", format=form), "'..'"),
        (Files(name="drop").folder(str(tmp_path), prefix="../private", format=form), "'..'"),
        (Files(name="drop").folder(str(closed.settings.data_dir), prefix="run", format=form), "platform's own"),
    ]
    for connector, said in doors:
        assert said in tried(closed, [rows_of(connector, every="1h", cdc="native" if form == "delta" else "append")])


def test_the_server_s_identity_is_shown_for_no_definition_without_keys(closed: ServerProcess, store: Heard) -> None:
    arn = "arn:aws:kinesis:eu-west-1:1:stream/s"
    stream = Kinesis(name="evil", role_arn=ROLE).stream(arn, "latest", format="json")
    evil = Azure(name="evil", account_name="evil.example/x#")
    doors: list[tuple[DataConnector, str]] = [
        (S3(name="lake").bucket("private", prefix="raw", format="json"), "connectors.own_rights"),
        (GCS(name="evil").bucket("private", prefix="raw", format="json"), "connectors.own_rights"),
        (Azure(name="evil", account_name="private").container("raw", prefix="raw", format="json"), "own_rights"),
        (evil.container("raw", prefix="raw", format="json"), "no name of"),
        (S3(name="lake", role_arn=ROLE).bucket("private", prefix="raw", format="json"), "connectors.roles"),
        (stream, "connectors.roles"),
    ]
    for connector, said in doors:
        every: dict[str, Any] = {} if connector is stream else {"every": "1h"}
        assert said in tried(closed, [rows_of(connector, **every)])
    given, loot = copied_to(S3(name="lake").bucket("private", prefix="raw", format="delta"))
    assert "connectors.own_rights" in refused(closed, [given, loot], trial=False)
    assert OWN_KEY.encode() not in store.sent
    assert not store.paths
