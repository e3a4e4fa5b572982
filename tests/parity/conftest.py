from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.conftest import lasting_session, postgres_server, spark
from tests.parity.streaming import Machinery, machinery

__all__ = ["lasting_session", "postgres_server", "spark"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="module")
def engines(spark: SparkSession, postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machinery]:
    with machinery(tmp_path_factory.mktemp("parity"), spark, postgres_server) as engines:
        yield engines
