from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.rig import Rig
from tests.integration.spark.broker import Broker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def rig(broker: Broker, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, broker.bootstrap_servers)
    yield rig
    rig.close()
