"""The slots of a plan compared with those that Spark uses, and the reports of running jobs between checkpoints."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.engine.lag import Observer
from caraway.dataplane.streams.engine.slots import NoSlotsError, SlotBook
from caraway.dataplane.streams.engine.spark_runtime import SparkRuntime, slots_offered
from caraway.dataplane.streams.spark.live import LiveRows
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.positions import TopicEnds
from caraway.graph.operators import JoinKind
from caraway.graph.plan.slots import slots_of
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.sessions import SLOTS
from tests.integration.spark.shop import Shop
from tests.timeouts import deadline_in


def tasks_of(session: SparkSession) -> int:
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def eventually(check: Callable[[], bool], explain: Callable[[], str], seconds: float = 120) -> None:
    deadline = deadline_in(seconds)
    while not check():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def runtime_of(spark: SparkSession, broker: Broker, folder: Path, slots: int) -> SparkRuntime:
    return SparkRuntime(
        session=spark,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=1,
        processors=None,
        checkpoint_of=lambda job: folder / job,
        # No checkpoint comes in between, since all tasks would end at it.
        checkpoint_interval_seconds=600,
        observer=Observer(
            TopicEnds(broker.bootstrap_servers).ends,
            LiveRows(spark).look,
            partial(records_per_message, broker.bootstrap_servers),
        ),
        slots=SlotBook(lambda: slots),
        objects_url=str(folder / "objects"),
    )


def test_each_job_holds_the_slots_that_are_planned_and_no_more_are_given(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    shop = Shop("-slots")
    jobs = shop.jobs()
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    assert slots_offered(spark) == SLOTS
    slots = sum(slots_of(job, partitions=1, tasks=1) for job in jobs)
    runtime = runtime_of(spark, broker, tmp_path, slots)
    queries, held = {}, 0
    try:
        for job in jobs:
            queries[job.job_id] = runtime.start(job)
            held += slots_of(job, partitions=1, tasks=1)
            eventually(lambda: tasks_of(spark) == held, lambda: f"{job.job_id}: {tasks_of(spark)}, planned {held}")  # noqa: B023
        assert held == slots
        # Spark itself would accept this job, and let it wait for ever.
        one_more = replace(shop.doubled(), job_id="one-more-slots")
        with pytest.raises(NoSlotsError, match=f"needs 1 slot of Spark at once, and 0 of {slots} are free"):
            runtime.start(one_more)
        queries["stock-slots"].stop()
        queries["one more"] = runtime.start(one_more)
        eventually(lambda: tasks_of(spark) == slots - 1, lambda: str(tasks_of(spark)))
    finally:
        for query in queries.values():
            query.stop()


def test_what_jobs_have_read_counts_before_their_first_checkpoint(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    shop = Shop("-read")
    orders, prices = model.traffic(seed=6, count=2000)
    jobs = [shop.doubled(), shop.priced(JoinKind.LEFT)]
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    broker.send(shop.orders, orders)
    broker.send(shop.prices, prices)
    runtime, live = runtime_of(spark, broker, tmp_path, 64), LiveRows(spark)
    queries = [runtime.start(job) for job in jobs]

    def are_caught_up() -> bool:
        runtime.observer.look()
        return [query.progress().get("lag_records") for query in queries] == [0, 0]

    def read() -> list[tuple[int, int]]:
        told = live.look()
        found = [told.get(str(query.query.runId)) for query in queries]
        return [(reading.batch, reading.rows) for reading in found if reading is not None]

    try:
        eventually(are_caught_up, lambda: f"{[query.progress() for query in queries]}, {live.look()}")
        assert all("batch" not in query.progress() for query in queries), "there was a checkpoint"
        assert read() == [(0, len(orders)), (0, len(orders) + len(prices))]
        broker.send(shop.orders, orders[:700])
        more = [(0, len(orders) + 700), (0, len(orders) + len(prices) + 700)]
        eventually(lambda: read() == more, lambda: f"{live.look()}")
    finally:
        for query in queries:
            query.stop()
    eventually(lambda: not live.look(), lambda: f"{live.look()}")
