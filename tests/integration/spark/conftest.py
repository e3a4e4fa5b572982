from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.spark.session import SessionSettings, caraway_jar, open_session
from tests.integration.spark.broker import Broker, jars, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    settings = SessionSettings(
        master="local[64]", driver_memory="768m", jars=[*jars().connector, caraway_jar()], scratch=scratch
    )
    session = open_session(settings)
    yield session
    session.stop()
