"""Real services for the tests below: one broker, one Postgres and one Spark session for a whole run."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from caraway.stack import ports
from caraway.stack.jars import JarSet
from caraway.stack.postgres import EmbeddedPostgres
from tests.alone import running
from tests.integration.spark import broker as brokers
from tests.integration.spark.broker import Broker, running_broker
from tests.integration.spark.sessions import LastingSession, tell
from tests.services.mariadb import MariaDB, running_mariadb

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def jars() -> JarSet:
    """Return the Java libraries of broker and connector; fetch missing ones."""
    return brokers.jars()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a broker for all tests, which no test may kill; use topic names of your own."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> str:
    """Return the addresses of the broker."""
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def lasting_session(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[LastingSession]:
    """Yield the holder of the session of all tests."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def shown(text: str) -> None:
        with capture.global_and_fixture_disabled():
            tell(text)

    session = LastingSession(lambda: tmp_path_factory.mktemp("spark"), shown)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark(lasting_session: LastingSession) -> SparkSession:
    """Return a session that all tests share; stop all queries that you start."""
    return lasting_session.get()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Postgres server for all tests; yield the URL of its first database."""
    folder = tmp_path_factory.mktemp("postgres")
    server = EmbeddedPostgres(folder, ports.choose())
    with running(server, folder / "postgres.log"):
        yield server.url


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """Start a MariaDB server for all tests, which no test may kill; use names of tables of your own."""
    with running_mariadb(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """Yield the URL of an empty database, one for each test."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield f"{postgres_server.rpartition('/')[0]}/{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
