"""Thirty jobs in one engine: all of them answer, in about as many of Spark's slots as the plan computes."""

import signal
from pathlib import Path

import pytest

from caraway.graph.plan.slots import slots_of, tasks_of
from caraway.process.settings.streams import SparkSettings
from tests.integration.engine.rig import Rig, is_gone
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.shop import Shop
from tests.timeouts import scaled

SHOPS, ROWS = 6, 60
# On two idle cores they start in half a minute.
START_SECONDS = 240
# Spark frees the slots of a batch some moments after it has ended, and the next one begins at once.
SPARE_SLOTS = 4


@pytest.mark.full(reason="thirty jobs at once; test_slots compares plan and Spark with a few")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_jobs_answer_in_as_many_slots_as_planned(broker: Broker, tmp_path: Path) -> None:
    shops = [Shop(f"-many{n}") for n in range(SHOPS)]
    traffic = [model.traffic(seed=n, count=ROWS) for n in range(SHOPS)]
    jobs = [job for shop in shops for job in shop.jobs()]
    assert len(jobs) == 30
    topics = [topic for shop in shops for topic in (shop.orders, shop.prices)]
    broker.create(*topics, *(job.output for job in jobs))
    processors = SparkSettings(master="local[1]").processors
    tasks = [tasks_of(job, partitions=1, processors=processors).count for job in jobs]
    slots = sum(slots_of(job, partitions=1, tasks=count) for job, count in zip(jobs, tasks, strict=True))
    rig = Rig(tmp_path, broker.bootstrap_servers, CARAWAY_SPARK__MASTER=f"local[{slots + SPARE_SLOTS}]")
    try:
        rig.want(jobs)
        rig.start()
        rig.wait_until_running(len(jobs), START_SECONDS)
        for shop, (orders, prices) in zip(shops, traffic, strict=True):
            broker.send(shop.orders, orders)
            broker.send(shop.prices, prices)
        for shop, (orders, prices) in zip(shops, traffic, strict=True):
            for job in shop.jobs():
                expected = model.expected_of(job, orders, prices)
                assert broker.receive(job.output, expected) == expected, f"{job.job_id}\n{rig.log()}"
        rig.process.send_signal(signal.SIGTERM)
        jvm = rig.jvm()
        assert rig.process.wait(scaled(60)) == 0, rig.log()
        assert is_gone(jvm, 1)
    finally:
        rig.close()
