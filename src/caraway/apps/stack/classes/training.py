"""A Spark session that does its usual work for a moment, and writes down the classes that it has loaded.

    python -m caraway.apps.stack.classes.training ARCHIVE BOOTSTRAP_SERVERS JAR...

runs jobs in both modes in the current folder, until each has written something.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from caraway.dataplane.streams.engine.lag import Observer
from caraway.dataplane.streams.engine.slots import SlotBook
from caraway.dataplane.streams.engine.spark_runtime import SparkRuntime
from caraway.dataplane.streams.java.class_archives import ClassArchive
from caraway.dataplane.streams.spark.java import jvm_process
from caraway.dataplane.streams.spark.live import LiveRows
from caraway.dataplane.streams.spark.session import SessionSettings, open_session
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.block_sizes import records_per_message
from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.newest import NewestReader
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.datasets import Average, Count, Dataset, Stddev, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.graph.plan.model import GraphPlan, TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.lib import inputs

SLOTS = 64
ROWS, ITEMS = 200, 7
DRIVER_MEMORY = "1g"
JOB_SECONDS = 180.0
# More than the rows of a topic take.
MAX_BYTES = 1 << 20


@dataset(index=True)
class _Prices:
    item: str = field(key=True)
    price: float
    at: datetime


@dataset
class _Sales:
    sale: int
    item: str
    count: int
    at: datetime


@dataset(index=True)
class _Revenue:
    item: str = field(key=True)
    sales: int
    revenue: float
    mean: float
    spread: float
    at: datetime

    @pipeline
    @inputs(_Sales, _Prices)
    def revenue_by_item(cls, sales: Dataset, prices: Dataset) -> Any:  # noqa: N805
        """Join and aggregate, in real-time mode."""
        priced = sales.dedup("sale").join(prices, how="inner", on=["item"]).filter(col("count") > 0)
        revenue = priced.assign(revenue=(col("count") * col("price")).astype(float))
        return revenue.groupby("item").aggregate(
            sales=Count(window=Continuous("1h")),
            revenue=Sum(of="revenue", window=Continuous("1d")),
            mean=Average(of="revenue", window=Continuous("1d")),
            spread=Stddev(of="revenue", window=Continuous("forever"), default=0.0),
        )


@dataset
class _Named:
    name: str
    count: int
    at: datetime

    @pipeline
    @inputs(_Sales)
    def names(cls, sales: Dataset) -> Any:  # noqa: N805
        """Apply Python functions, in micro-batches."""
        named = sales.assign("name", str, lambda df: df["item"].map(lambda item: f"item {item}"))
        return named.drop("sale", "item")


def run_jobs(classes: ClassArchive, jars: Sequence[Path], bootstrap_servers: str, folder: Path) -> None:
    """Run jobs in both modes until each has written something, in a session that archives its classes.

    Raises `TimeoutError` if a job wrote nothing within the time.
    """
    session = open_session(
        SessionSettings(
            master=f"local[{SLOTS}]",
            driver_memory=DRIVER_MEMORY,
            jars=jars,
            scratch=folder / "spark",
            java_options=classes.options_to_make(),
        )
    )
    jvm = jvm_process(session)
    try:
        _work(session, folder, plan_of_training(), bootstrap_servers)
    finally:
        session.stop()
        # The JVM ends by itself when its input is closed, and then writes the archive.
        if jvm.stdin is not None:
            jvm.stdin.close()
        jvm.wait()


def plan_of_training() -> GraphPlan:
    """Return a plan with jobs in both modes, which join, deduplicate and aggregate."""
    return plan_graph(Graph(datasets=tuple(d.to_spec() for d in (_Prices, _Sales, _Revenue, _Named)), featuresets=()))


def _work(session: SparkSession, folder: Path, plan: GraphPlan, bootstrap_servers: str) -> None:
    ensure_topics(bootstrap_servers, [topic.name for topic in plan.topics], 1)
    ends = TopicEnds(bootstrap_servers)
    runtime = SparkRuntime(
        session=session,
        bootstrap_servers=bootstrap_servers,
        partitions=1,
        processors=os.cpu_count(),
        checkpoint_of=lambda job: folder / "checkpoints" / job,
        checkpoint_interval_seconds=10,
        observer=Observer(ends.ends, LiveRows(session).look, partial(records_per_message, bootstrap_servers)),
        slots=SlotBook(lambda: SLOTS),
        objects_url=str(folder / "objects"),
    )
    # Jobs are started before any row is written, so that they find no backlog and run as live jobs. With a backlog they
    # would start in the phase that reads history in large batches, and load other classes.
    queries = [runtime.start(job) for job in plan.jobs]
    newest = NewestReader(bootstrap_servers)

    def records_of(topic: str) -> int:
        messages = newest.newest(topic, ROWS, max_bytes=MAX_BYTES, wanted=lambda key: not is_marker(key))
        return sum(records_in(value) for _, value, *_ in messages)

    def done() -> bool:
        # The rows of an item that are processed together leave as one record.
        return all(records_of(job.output.name) >= ITEMS for job in plan.jobs)

    def state() -> str:
        return f"the jobs don't get on: {[(query.query.status, query.query.exception()) for query in queries]}"

    try:
        _send_rows(plan, bootstrap_servers)
        _wait(done, JOB_SECONDS, state)
    finally:
        for query in queries:
            query.stop()
        newest.close()


def _send_rows(plan: GraphPlan, bootstrap_servers: str) -> None:
    topics = {topic.dataset: topic for topic in plan.topics}
    now = time.time_ns() // 1000
    items = [f"item {place % ITEMS}" for place in range(ROWS)]
    with TopicWriter(bootstrap_servers) as writer:
        _send(writer, topics["_Prices"], [[item, float(place)] for place, item in enumerate(items)], now)
        _send(writer, topics["_Sales"], [[place, item, 1] for place, item in enumerate(items)], now + 1)


def _send(writer: TopicWriter, topic: TopicPlan, rows: Sequence[list[Any]], now: int) -> None:
    codec, keys = RecordCodec(topic.schema), len(topic.schema.keys)
    values = [
        codec.encode_value(op=PUT, time_us=now, ingested_us=now, record_id=position_id(0, place), row=row)
        for place, row in enumerate(rows)
    ]
    items = [(codec.encode_key(row[:keys]), value, None) for row, value in zip(rows, values, strict=True)]
    writer.write(topic.name, items).result(JOB_SECONDS)


def _wait(check: Callable[[], bool], seconds: float, explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(explain())
        time.sleep(0.05)


if __name__ == "__main__":
    archive, servers, *jars_given = sys.argv[1:]
    run_jobs(ClassArchive(Path(archive)), [Path(jar) for jar in jars_given], servers, Path.cwd())
