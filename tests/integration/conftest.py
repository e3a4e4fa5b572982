"""Real services for the tests below: one broker, one Postgres and one Spark session for a whole run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from caraway.apps.stack.jars import JarSet
from caraway.state.database import connect
from tests.integration.databases import EMPTY, new_database, running_postgres
from tests.integration.spark import broker as brokers
from tests.integration.spark.broker import Broker, running_broker
from tests.integration.spark.sessions import LastingSession, tell
from tests.services.mariadb import MariaDB, running_mariadb
from tests.services.secured_kafka import SecuredKafka, running_secured_kafka

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
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Start a broker with TLS and passwords for all tests; use topic names of your own."""
    with running_secured_kafka(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


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
    with running_postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """Start a MariaDB server for all tests, which no test may kill; use names of tables of your own."""
    with running_mariadb(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a database with Caraway's tables and without rows, one for each test."""
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module")
def module_postgres(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a database with Caraway's tables, one for each file of tests."""
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture
def empty_postgres(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a database without tables, one for each test."""
    with new_database(postgres_server, template=EMPTY) as url:
        yield url


@pytest.fixture
def engine(postgres: str) -> Iterator[sa.Engine]:
    """Yield connections to the database of the test."""
    engine = connect(postgres)
    yield engine
    engine.dispose()
