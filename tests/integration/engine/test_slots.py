"""What the plan says of slots beside what Spark does: each job holds so many, and one too many is refused."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.engine.observer import Observer
from caraway.engine.slots import NoSlotsError, SlotBook
from caraway.engine.spark_runtime import SparkRuntime, slots_offered
from caraway.plan.slots import slots_of
from caraway.spark.live import live_rows
from caraway.topics.positions import TopicEnds
from tests.integration.spark.broker import Broker
from tests.integration.spark.conftest import spark
from tests.integration.spark.shop import Shop

__all__ = ["spark"]


def tasks_of(session: SparkSession) -> int:
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def eventually(check: Callable[[], bool], explain: Callable[[], str], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def test_each_job_holds_the_slots_that_are_planned_and_no_more_are_given(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    shop = Shop("-slots")
    jobs = shop.jobs()
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    assert slots_offered(spark) == 64
    slots = sum(slots_of(job, 1) for job in jobs)
    ends = TopicEnds(broker.bootstrap_servers)
    runtime = SparkRuntime(
        session=spark,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=1,
        checkpoint_of=lambda job: tmp_path / job,
        # No checkpoint comes between, at which all tasks would end.
        checkpoint_interval_seconds=600,
        observer=Observer(ends.ends, lambda: live_rows(spark)),
        slots=SlotBook(lambda: slots),
    )
    queries, held = {}, 0
    try:
        for job in jobs:
            queries[job.job_id] = runtime.start(job)
            held += slots_of(job, 1)
            eventually(lambda: tasks_of(spark) == held, lambda: f"{job.job_id}: {tasks_of(spark)}, planned {held}")  # noqa: B023
        assert held == slots
        # Spark itself would take this one, and let it wait among the running ones for ever.
        one_more = replace(shop.doubled(), job_id="one-more-slots")
        with pytest.raises(NoSlotsError, match=f"needs 1 slots of Spark at once, and 0 of {slots} are free"):
            runtime.start(one_more)
        queries["stock-slots"].stop()
        queries["one more"] = runtime.start(one_more)
        eventually(lambda: tasks_of(spark) == slots - 1, lambda: str(tasks_of(spark)))
    finally:
        for query in queries.values():
            query.stop()
