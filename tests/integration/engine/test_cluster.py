"""The same jobs on a standalone Spark cluster with two workers, which are killed one after the other."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dtypes.types import INT
from caraway.graph.capture.shipping import python_function
from caraway.graph.operators import Aggregate, Assign, AssignFunction, JoinKind
from caraway.graph.plan.model import JobMode, JobPlan
from tests.integration.engine.cluster import running_cluster
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.shop import Shop
from tests.timeouts import scaled

ROWS = 400
# Seven JVMs start side by side, which takes 20 seconds on two idle cores; after a kill it takes as long again.
START_SECONDS = 240
ANSWER_SECONDS = 180


@pytest.mark.full(reason="seven JVMs of a standalone cluster, whose workers are killed")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_run_on_a_cluster_and_outlive_its_workers(broker: Broker, tmp_path: Path) -> None:
    shop = Shop("-cluster")
    orders, prices = model.traffic(seed=4, count=ROWS)
    jobs = [shop.priced(JoinKind.LEFT), doubled_in_python(shop)]
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    conf = [
        "spark.executor.memory=512m",
        "spark.executor.cores=8",
        "spark.executor.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host=127.0.0.1",
    ]
    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", workers=2, cores=8, memory="1g") as cluster:
        settings = {"CARAWAY_SPARK__MASTER": cluster.url, "CARAWAY_SPARK__CONF": json.dumps(conf)}
        rig = Rig(tmp_path, broker.bootstrap_servers, **settings)

        def answers(sent: int) -> None:
            for job in jobs:
                expected = model.expected_of(job, orders[:sent], prices)
                received = broker.receive(job.output, expected, limit=ANSWER_SECONDS)
                assert received == expected, f"{job.job_id}\n{rig.log()}"

        rig.want(jobs)
        try:
            rig.start()
            rig.wait_until_running(len(jobs), START_SECONDS)
            broker.send(shop.prices, prices)
            broker.send(shop.orders, orders[: ROWS // 3])
            answers(ROWS // 3)
            assert len(cluster.executors()) == 2

            # In the end all jobs of the first two workers run on others, from their checkpoints.
            cluster.kill_worker(0)
            cluster.start_worker(2)
            broker.send(shop.orders, orders[ROWS // 3 : 2 * ROWS // 3])
            answers(2 * ROWS // 3)
            cluster.kill_worker(1)
            broker.send(shop.orders, orders[2 * ROWS // 3 :])
            answers(ROWS)
            rig.process.send_signal(signal.SIGTERM)
            assert rig.process.wait(scaled(60)) == 0, rig.log()
        finally:
            rig.close()


def doubled_in_python(shop: Shop) -> JobPlan:
    """Return the job that doubles quantities by a user's function, for which executors start Python."""
    job = shop.doubled()
    assert isinstance(job.operator, Aggregate)
    assert isinstance(job.operator.of, Assign)
    assigned = AssignFunction(
        of=job.operator.of.of,
        column="twice",
        dtype=INT,
        function=python_function("twice", lambda df: df["quantity"] * 2),
    )
    return replace(job, operator=replace(job.operator, of=assigned), mode=JobMode.MICRO_BATCH)
