"""Tests that the consolidated output of jobs in real-time mode, over a real broker, is that of plain Python."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.graph.operators import JoinKind
from caraway.plan.model import JobPlan
from caraway.spark.jobs import start_job
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Awaited, Broker, rows_of
from tests.integration.spark.shop import Shop

ROWS = 600
CHUNK = 60
JOBS = ["doubled", JoinKind.LEFT, JoinKind.INNER, "twice", "stock"]


@dataclass(frozen=True)
class Run:
    """The output topic of each job, consolidated, and its expected content."""

    found: Mapping[str, Sequence[Any]]
    expected: Mapping[str, Sequence[Any]]


AS_SENT = pytest.param("as sent", marks=pytest.mark.full(reason="the same rows as with repeats, each once"))


@pytest.fixture(scope="module", params=[AS_SENT, "with repeats"])
def run(
    request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Run all jobs of the shop while its records come in, late ones among them, in small lots."""
    shop = Shop("-1" if request.param == "as sent" else "-2")
    orders, prices = model.traffic(seed=len(request.param), count=ROWS)
    if request.param == "with repeats":
        orders, prices = model.with_repeats(orders, 1), model.with_repeats(prices, 2)
    jobs = shop.jobs()
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    broker.send(shop.orders, orders[:CHUNK])
    broker.send(shop.prices, prices[: CHUNK // 2])
    folder = tmp_path_factory.mktemp("checkpoints")
    queries: list[StreamingQuery] = []
    try:
        for job in jobs:
            queries.append(_start(spark, broker, job, folder))  # noqa: PERF401 (a start may fail)
        for i in range(1, len(orders) // CHUNK + 1):
            broker.send(shop.orders, orders[i * CHUNK : (i + 1) * CHUNK])
            broker.send(shop.prices, prices[i * CHUNK // 2 : (i + 1) * CHUNK // 2])
            time.sleep(0.3)
        wanted = [model.expected_of(job, orders, prices) for job in jobs]
        awaited = [Awaited(job.output, rows, rows_of) for job, rows in zip(jobs, wanted, strict=True)]
        received = broker.receive_all(awaited)
        failures = [query.exception() for query in queries]
    finally:
        for query in queries:
            query.stop()
    names = [job.job_id.split("-")[0] for job in jobs]
    assert failures == [None] * len(queries)
    return Run(dict(zip(names, received, strict=True)), dict(zip(names, wanted, strict=True)))


@pytest.mark.parametrize("job", JOBS)
def test_output_is_what_plain_python_makes_of_the_input(job: str, run: Run) -> None:
    assert len(run.expected[job]) > 50
    assert run.found[job] == run.expected[job]


def _start(spark: SparkSession, broker: Broker, job: JobPlan, folder: Path) -> StreamingQuery:
    return start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=folder / job.job_id,
        checkpoint_interval_seconds=5,
    )
