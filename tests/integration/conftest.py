"""Real services for the tests below: one broker and one Postgres for a whole run."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from caraway.config import load_settings
from caraway.stack import ports
from caraway.stack.alone import running
from caraway.stack.jars import JarSet, ensure_jars
from caraway.stack.kafka import EmbeddedKafka
from caraway.stack.postgres import EmbeddedPostgres

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def jars() -> JarSet:
    """The Java libraries of broker and connector, fetched if need be."""
    return ensure_jars(load_settings())


@pytest.fixture(scope="session")
def kafka(jars: JarSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a broker; use topic names of your own."""
    folder = tmp_path_factory.mktemp("kafka")
    port = ports.choose()
    broker = EmbeddedKafka(folder, port=port, controller_port=ports.choose(avoid=[port]), jars=jars.broker)
    with running(broker, folder / "kafka.log"):
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Postgres server's first database."""
    folder = tmp_path_factory.mktemp("postgres")
    server = EmbeddedPostgres(folder, ports.choose())
    with running(server, folder / "postgres.log"):
        yield server.url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """URL of an empty database, one for each test."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield f"{postgres_server.rpartition('/')[0]}/{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
