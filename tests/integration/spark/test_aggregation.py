"""Tests that aggregates, by Spark's aggregate inputs and the index, are those of the in-process engine."""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.compute.reference.changes import SourceChange
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.topics.codec import DELETE, PUT
from caraway.graph.plan.model import GraphPlan, IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from tests.integration.spark.broker import Broker, Sent
from tests.tiers import selected
from tests.timeouts import deadline_in
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, case, random_change
from tests.unit.dataplane.index.test_against_engine import FOREVER_HOPPING, LATE, compare

ROWS = 60
TIMEOUT_S = 120.0
# The job of an aggregate of events is tested in tests/integration/spark/test_blocks.py.
CASES = [case("table_forever", (FOREVER_HOPPING,), keyed=True), case("table_along", (LATE[0],), keyed=True, along=True)]
VARIANT = pytest.mark.full(reason="a variant of the other case; a job more beside its own")
NAMES = [pytest.param("table_forever", marks=VARIANT), "table_along"]
pytestmark = [pytest.mark.filterwarnings("ignore:aggregate"), pytest.mark.timeout(600)]


def planned(found: Case) -> GraphPlan:
    """Return the plan of a case, with topics of its own and no limit to late rows."""
    plan = plan_graph(Graph(datasets=(found.source, found.out)))
    topics = {t.dataset: replace(t, name=f"{t.name}.{found.name}", disorder_us=10**12) for t in plan.topics}
    jobs = tuple(
        replace(
            job,
            job_id=f"{job.job_id}.{found.name}",
            inputs=tuple(topics[t.dataset] for t in job.inputs),
            output=topics[job.output.dataset],
            horizon_us=10**12,
        )
        for job in plan.jobs
    )
    names = {t.name: topics[t.dataset] for t in plan.topics}
    indexes = tuple(replace(index, topic=names[index.topic].name) for index in plan.indexes)
    return replace(plan, topics=tuple(topics.values()), jobs=jobs, indexes=indexes)


def sent(found: Case, change: SourceChange) -> Sent:
    """Return a change as a record of the source."""
    names = [f.name for f in found.source.fields if not f.timestamp]
    names.sort(key=lambda name: name not in found.source.keys)
    return Sent(
        row=[change.row[name] for name in names],
        key=[change.row[name] for name in found.source.keys],
        time_us=change.time_us,
        op=DELETE if change.delete else PUT,
    )


@pytest.fixture(scope="module")
def answers(
    request: pytest.FixtureRequest, broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, tuple[Case, Job, IndexReader]]]:
    """Run the jobs of the cases that are tested, and one index for all of them."""
    folder: Path = tmp_path_factory.mktemp("aggregates")
    rng = random.Random(5)
    with ExitStack() as stack:
        store = stack.enter_context(IndexStore(folder / "index"))
        worker = IndexWorker(broker.bootstrap_servers, store)
        running: dict[str, tuple[Case, Job, IndexReader]] = {}
        indexes: list[IndexPlan] = []
        for found in (case for case in CASES if case.name in selected(request, "name")):
            plan = planned(found)
            broker.create(*plan.topics)
            (planned_job,) = plan.jobs
            query = start_job(
                spark,
                planned_job,
                bootstrap_servers=broker.bootstrap_servers,
                checkpoint=folder / found.name,
                checkpoint_interval_seconds=60,
            )
            stack.callback(query.stop)
            index = replace(plan.indexes[0], asset=b"agg----" + bytes([len(indexes) + 1]))
            indexes.append(index)
            found.plan = index
            job = Job(found)
            changes = [random_change(found, rng) for _ in range(ROWS)]
            (source,) = [topic for topic in plan.topics if topic.dataset == found.source.name]
            broker.send(source, [sent(found, change) for change in changes])
            for change in changes:
                job.log(change)
            running[found.name] = (found, job, IndexReader(store))
        worker.set_plans(indexes)
        worker.start()
        stack.callback(worker.stop)
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_the_stack_answers_as_the_engine_does(answers: Mapping[str, tuple[Case, Job, IndexReader]], name: str) -> None:
    found, job, reader = answers[name]
    ats = [n * SECOND // 2 for n in range(-12, 90, 7)] + [10**13]
    deadline = deadline_in(TIMEOUT_S)
    while True:
        try:
            compare(found, job, reader, ats, exact=True)
            break
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
