from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.rig import Rig
from tests.integration.spark.broker import Broker


@pytest.fixture
def rig(broker: Broker, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, broker.bootstrap_servers)
    yield rig
    rig.close()
