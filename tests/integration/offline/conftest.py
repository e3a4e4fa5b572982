"""Fixtures: a server for all tests of a file, and a branch of it with the shop's data for each test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.archive.conftest import archive_of
from tests.integration.jobs import running_jobs
from tests.integration.offline.desk import Shop
from tests.integration.server.server_process import ServerProcess, running_server

__all__ = ["archive_of"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of temporary files of the processes that are started."""
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(
    kafka: str, module_postgres: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, scratch: Path
) -> Iterator[ServerProcess]:
    del scratch
    folder = tmp_path_factory.mktemp("server")
    with (
        running_server(folder, kafka=kafka, postgres=module_postgres) as process,
        running_jobs(process.settings, spark),
    ):
        yield process


@pytest.fixture
def shop(server: ServerProcess) -> Iterator[Shop]:
    with closing(Shop(server)) as made:
        made.log()
        yield made
