import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from caraway.graph.operators import JoinKind
from caraway.graph.plan.model import JobPlan
from tests.integration.conftest import lasting_session, postgres, postgres_server, spark
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker, Sent, running_broker
from tests.integration.spark.shop import Shop

__all__ = ["lasting_session", "postgres", "postgres_server", "spark"]

HERE = Path(__file__).parent
PARTS = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@dataclass(frozen=True)
class Traffic:
    """The shop's jobs, and rows for them that come in some parts."""

    shop: Shop
    broker: Broker
    jobs: list[JobPlan]
    orders: list[Sent]
    prices: list[Sent]

    def send(self, part: int) -> None:
        for topic, sent in ((self.shop.orders, self.orders), (self.shop.prices, self.prices)):
            self.broker.send(topic, sent[part * len(sent) // PARTS : (part + 1) * len(sent) // PARTS])

    def agree(self, rig: Rig, parts: int = PARTS) -> None:
        """Wait until all outputs are what plain Python makes of the parts that were sent."""
        orders, prices = (sent[: parts * len(sent) // PARTS] for sent in (self.orders, self.prices))
        for job in self.jobs:
            expected = model.expected_of(job, orders, prices)
            assert self.broker.receive(job.output, expected, limit=240) == expected, f"{job.job_id}\n{rig.log()}"


@pytest.fixture
def traffic(broker: Broker, request: pytest.FixtureRequest) -> Traffic:
    """A table that is joined, a stateless job, and aggregate inputs of the table."""
    # Topics of its own for each test.
    shop = Shop("-" + re.sub(r"\W+", "-", request.node.name.removeprefix("test_")))
    orders, prices = model.traffic(seed=7, count=600)
    jobs = [shop.doubled(), shop.priced(JoinKind.LEFT), shop.stock()]
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    return Traffic(shop, broker, jobs, orders, prices)


@pytest.fixture
def rig(broker: Broker, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, broker.bootstrap_servers)
    yield rig
    rig.close()
