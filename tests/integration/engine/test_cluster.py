"""The same jobs on a standalone Spark cluster with two workers, one of which loses its executor."""

import json
import signal
from pathlib import Path

import psutil
import pytest

from caraway.graph.operators import JoinKind
from tests.integration.engine.cluster import running_cluster
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.shop import Shop

ROWS = 400
# Seven JVMs start side by side; alone on two cores they take 20 seconds.
START_SECONDS = 240


# Six JVMs, on machines that do other things as well.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_jobs_run_on_a_cluster_and_outlive_an_executor(broker: Broker, tmp_path: Path) -> None:
    shop = Shop("-cluster")
    orders, prices = model.traffic(seed=4, count=ROWS)
    jobs = [shop.priced(JoinKind.LEFT), shop.doubled()]
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
        rig.want(jobs)
        try:
            rig.start()
            rig.wait_until_running(len(jobs), START_SECONDS)
            broker.send(shop.prices, prices)
            broker.send(shop.orders, orders[: ROWS // 2])
            left = jobs[0]
            expected = model.expected_of(left, orders[: ROWS // 2], prices)
            assert broker.receive(left.output, expected) == expected, rig.log()
            assert len(cluster.executors()) == 2

            executor = next(p for p in psutil.process_iter(["cmdline"]) if is_executor_of(p, cluster.url, tmp_path))
            executor.kill()
            broker.send(shop.orders, orders[ROWS // 2 :])
            for job in jobs:
                expected = model.expected_of(job, orders, prices)
                assert broker.receive(job.output, expected) == expected, f"{job.job_id}\n{rig.log()}"
            rig.process.send_signal(signal.SIGTERM)
            assert rig.process.wait(30) == 0, rig.log()
        finally:
            rig.close()


def is_executor_of(process: psutil.Process, master: str, folder: Path) -> bool:
    """Tell whether a process is an executor that a worker of this very cluster has started."""
    arguments = process.info["cmdline"] or []
    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" not in arguments:
        return False
    parent = process.parent()
    return parent is not None and master in parent.cmdline() and str(folder) in " ".join(parent.cmdline())
