"""Tests that jobs over the rows of an aggregate, which the index emits, have the in-process engine's output."""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.compute.reference.engine import LocalEngine
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dtypes.types import INT
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.operators import Aggregate, Changelog, Filter, Input
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec
from caraway.graph.windows import ContinuousWindow
from tests.integration.spark.broker import Broker
from tests.integration.spark.test_aggregation import sent
from tests.timeouts import deadline_in
from tests.unit.compute.reference.building import derived, spec_of
from tests.unit.dataplane.index.oracle import EVENTS, Case, random_change
from tests.unit.dataplane.index.test_against_engine import HOPPING
from tests.unit.dataplane.index.test_emission import SESSION

TIMEOUT_S = 120.0
ROWS = 40
pytestmark = pytest.mark.timeout(600)

F = AggregateFunction
events = Input(dataset="Events")
HOPPED = Aggregate(
    of=events,
    keys=("g",),
    aggregates=(spec_of(F.COUNT, None, HOPPING, "n", EVENTS), spec_of(F.MAX, "n", HOPPING, "most", EVENTS)),
)
SESSIONS = Aggregate(of=events, keys=("g",), aggregates=(spec_of(F.COUNT, None, None, "n", EVENTS),), window=SESSION)


def indexed(spec: DatasetSpec) -> DatasetSpec:
    return replace(spec, index=IndexSpec(online=True, offline=False))


COUNTED = indexed(derived(HOPPED, "Counted", [EVENTS]))
CHANGED = Changelog(of=Input(dataset="Counted"), column="gone", marks_inserts=False)
FOREVER = ContinuousWindow(length_us=None)
CHANGES = indexed(
    derived(
        Aggregate(
            of=CHANGED,
            keys=("g", "gone"),
            aggregates=(
                spec_of(F.COUNT, None, FOREVER, "times", EVENTS),
                replace(spec_of(F.SUM, "n", FOREVER, "sum", EVENTS), dtype=INT),
            ),
        ),
        "Changes",
        [EVENTS, COUNTED],
    )
)
LONG = indexed(
    derived(
        Filter(of=SESSIONS, predicate=Binary(op=BinaryOp.GT, left=Ref(name="n"), right=Literal(value=1, dtype=INT))),
        "Long",
        [EVENTS],
    )
)
DATASETS = (EVENTS, COUNTED, CHANGES, LONG)


def planned() -> GraphPlan:
    """Return the plan of the graph, with no limit to late rows."""
    plan = plan_graph(Graph(datasets=DATASETS))
    return replace(plan, jobs=tuple(replace(job, horizon_us=10**12) for job in plan.jobs))


def differing(plan: GraphPlan, reader: IndexReader, engine: LocalEngine) -> Sequence[object]:
    """Return the lookups that differ, over all keys at all times."""
    found = []
    for spec in (COUNTED, CHANGES, LONG):
        index = next(index for index in plan.indexes if index.dataset == spec.name)
        rows = engine.rows(spec.name)
        keys = {str(key): key for row in rows for key in [tuple(row[name] for name in spec.keys)]}
        times = sorted(
            {time_us for row in rows for at in [row["t"]] if isinstance(at, int) for time_us in (at, at - 1)}
        )
        columns = [f.name for f in spec.fields]
        encode = RecordCodec(replace(index.schema, keys=index.keys)).encode_key
        for at_us in (*times, 10**15):
            asked = list(keys.values())
            expected = engine.lookup(spec.name, asked, at_us, columns)
            got = reader.read(index, [encode(key) or b"" for key in asked], at_us, columns)
            if got != expected:
                found.append((spec.name, at_us, got, expected))
    return found


def test_jobs_behind_aggregates_see_their_rows(broker: Broker, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(11)
    plan, engine = planned(), LocalEngine(DATASETS)
    source = Case("rows", HOPPED, keyed=False)
    with ExitStack() as stack:
        broker.create(*plan.topics)
        store = stack.enter_context(IndexStore(tmp_path / "index"))
        worker = IndexWorker(broker.bootstrap_servers, store)
        worker.start()
        stack.callback(worker.stop)
        worker.set_plans(plan.indexes)
        for job in plan.jobs:
            query = start_job(
                spark,
                job,
                bootstrap_servers=broker.bootstrap_servers,
                checkpoint=tmp_path / job.job_id,
                checkpoint_interval_seconds=60,
            )
            stack.callback(query.stop)
        topic = next(topic for topic in plan.topics if topic.dataset == "Events")
        for _ in range(2):
            changes = [random_change(source, rng) for _ in range(ROWS)]
            broker.send(topic, [sent(source, change) for change in changes])
            engine.apply_changes("Events", changes)
            deadline = deadline_in(TIMEOUT_S)
            while differences := differing(plan, IndexReader(store), engine):
                assert time.monotonic() < deadline, differences[:3]
                time.sleep(0.2)
        # The sessions of dataset Long have a topic named by content, which other pipelines can share.
        asked = {f"{read.dataset}/rows" for job in plan.jobs for read in job.inputs if read.name.endswith(".rows")}
        assert len(asked) == 2
        assert {status.dataset for status in worker.positions() if status.emitted} == asked
