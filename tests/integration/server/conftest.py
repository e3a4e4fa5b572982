"""Fixtures with one server for all tests that don't kill it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pyspark.sql import SparkSession

from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.settings import PostgresSettings, Settings
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.databases import new_database
from tests.integration.jobs import running_jobs
from tests.integration.server.guarded import Guarded, guarded_server
from tests.integration.server.server_process import ServerProcess
from tests.integration.spark.broker import Broker, running_broker
from tests.tls import TLS
from tests.unit.compute.query import garden


@pytest.fixture(scope="session")
def database(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a database that the tests of servers share."""
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def server(kafka: str, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield a server that serves the garden."""
    process = ServerProcess(tmp_path_factory.mktemp("server"), kafka=kafka, postgres=database, cold=True)
    process.start()
    process.commit(garden.graph())
    yield process
    # No test may change what the server serves, because the tests that share it run in an order that is never the same.
    # A server closes the connection of a request that is too large, which the last test may have sent: the client would
    # send this request over the same connection, and get no answer.
    with httpx2.Client(base_url=process.http.base_url, headers=process.http.headers, timeout=60, verify=TLS) as client:
        datasets = client.get("/status").json()["datasets"]
    assert process.stop() == 0, process.said()
    assert datasets == [spec.name for spec in garden.graph().datasets]
    assert process.stalls() == []


@pytest.fixture(scope="session")
def guarded_garden(kafka: str, postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield a server with tokens that serves the garden, whose pots are private; it has a database of its own."""
    folder = tmp_path_factory.mktemp("guarded")
    with (
        new_database(postgres_server) as postgres,
        guarded_server(folder, kafka=kafka, postgres=postgres, graph=garden.tagged(Pots=["pii"])) as made,
    ):
        yield made


@pytest.fixture
def own_server(kafka: str, postgres: str, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Yield a function that starts servers on a database of the test's; they share a folder, so run only one.

    The function takes further settings of the server by their names.
    """
    made: list[ServerProcess] = []

    def make(**more: Any) -> ServerProcess:
        process = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, **more)
        made.append(process)
        process.start()
        return process

    yield make
    for process in made:
        process.kill()
        process.http.close()


@pytest.fixture
def jobs(kafka: str, postgres: str, spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Run the jobs of the test's own servers, whichever of these is killed."""
    settings = Settings(
        data_dir=tmp_path / "jobs",
        kafka=KafkaSettings(bootstrap_servers=kafka),
        postgres=PostgresSettings(url=postgres),
    )
    with running_jobs(settings, spark):
        yield


@pytest.fixture
def apart(postgres: str, tmp_path: Path) -> Iterator[Callable[..., tuple[ServerProcess, Broker]]]:
    """Yield a function that starts a server, and a broker for it alone, so that both may be killed.

    The function takes further settings of the server by their names.
    """
    with ExitStack() as stack:

        def start(**more: Any) -> tuple[ServerProcess, Broker]:
            broker = stack.enter_context(running_broker(tmp_path / "kafka"))
            kafka = broker.bootstrap_servers
            server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, **more)
            server.start()
            stack.callback(server.http.close)
            stack.callback(server.kill)
            return server, broker

        yield start


@pytest.fixture
def archived_by() -> Iterator[Callable[[ServerProcess], ArchiveProcess]]:
    """Yield a function that makes an archive with the settings of a server, which is killed after the test."""
    made: list[ArchiveProcess] = []

    def make(server: ServerProcess) -> ArchiveProcess:
        made.append(ArchiveProcess(server.settings, seconds=0.1))
        return made[-1]

    yield make
    for archive in made:
        if archive.lives():
            archive.kill()
