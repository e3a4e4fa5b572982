"""An engine is stopped or killed, or its JVM or its broker is: no row is lost, and no process stays behind."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.rig import Rig, is_gone
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker, running_broker
from tests.integration.spark.shop import Shop
from tests.timeouts import scaled

ROWS = 600


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Start a broker that may be killed."""
    with running_broker(tmp_path / "kafka") as broker:
        yield broker


# The test starts three JVMs and a broker twice, which takes long on a busy machine.
@pytest.mark.full(reason="three kills in a row; tests/e2e/test_kill.py kills each part of a stack once")
@pytest.mark.timeout(600)
def test_kills_lose_nothing(rig: Rig, broker: Broker) -> None:
    shop = Shop("-kills")
    orders, prices = model.traffic(seed=3, count=ROWS)
    jobs = shop.jobs()
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    rig.want(jobs)

    def send(part: int) -> None:
        lots = 6
        broker.send(shop.orders, orders[part * len(orders) // lots : (part + 1) * len(orders) // lots])
        broker.send(shop.prices, prices[part * len(prices) // lots : (part + 1) * len(prices) // lots])

    rig.start()
    rig.wait_until_running(len(jobs))
    send(0)
    # The engine runs past a checkpoint and a little more: the restart finds a state and rows to process again.
    time.sleep(7)
    send(1)
    time.sleep(1)
    jvm = rig.jvm()
    rig.process.kill()
    rig.process.wait()
    assert is_gone(jvm, 10), "a JVM without its driver works on"

    send(2)
    rig.start()
    rig.wait_until_running(len(jobs))
    send(3)
    time.sleep(1)
    rig.jvm().kill()
    assert rig.process.wait(scaled(90)) == 75, rig.log()

    rig.start()
    rig.wait_until_running(len(jobs))
    send(4)
    broker.kill()
    time.sleep(2)
    broker.start()
    send(5)

    for job in jobs:
        expected = model.expected_of(job, orders, prices)
        assert broker.receive(job.output, expected) == expected, f"{job.job_id}\n{rig.log()}"

    rig.process.send_signal(signal.SIGTERM)
    jvm = rig.jvm()
    assert rig.process.wait(scaled(90)) == 0, rig.log()
    assert is_gone(jvm, 1)
    assert {r["job_id"]: r["state"] for r in rig.reports()} == {job.job_id: "stopped" for job in jobs}
    assert "InterruptedException" not in rig.log()
