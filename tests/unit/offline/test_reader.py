"""Offline reads answer as the index of a server does, for every aggregate and every kind of window."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caraway.compute.query.model import Rows
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import STRING, DecimalType
from caraway.graph.plan.model import IndexPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph, IndexSpec
from caraway.graph.windows import HoppingWindow, SessionWindow
from caraway.offline.kernel.blocks import BlockSizes
from caraway.offline.reader import Memory, OfflineReader
from tests.effort import part_of
from tests.unit.compute.reference.building import dataset
from tests.unit.dataplane.index.oracle import COLUMNS, SECOND, Case, Job, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import CASES, times
from tests.unit.offline.topics import GivenTopics, topic_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

# Runs and blocks of a few rows, which divide the records of each key.
SPILLED = Memory(0, BlockSizes(run_rows=23, block_rows=5, cache_bytes=1200))


def bits(values: object) -> str:
    """Return values as text, in which NaN equals NaN, and -0.0 differs from 0.0."""
    return repr(values)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    with IndexStore(tmp_path / "index") as opened:
        yield opened


def check(
    plan: IndexPlan,
    messages: Sequence[Message],
    store: IndexStore,
    keys: Sequence[tuple[object, ...]],
    ats: Sequence[int],
    *,
    replays: bool | None = None,
) -> None:
    """Compare all columns of the two readers; `replays` tells whether the offline one has to build an index."""
    columns = [field.name for field in plan.fields]
    assert not IndexWriter(store).apply(plan, messages).refused
    online = DatasetReader(IndexReader(store), [plan])
    asked = [(key, at) for key in keys for at in ats]
    every, at_us = [key for key, _ in asked], [at for _, at in asked]
    expected = online.read(plan.dataset, every, at_us, columns)
    for memory in (None, SPILLED):
        compare(plan, messages, (every, at_us), expected, memory, replays=replays)
        with OfflineReader(GivenTopics({plan.topic: messages}), [plan], [topic_of(plan)], memory=memory) as offline:
            assert bits(offline.read(plan.dataset, every[:1], at_us[0], columns)) == bits(
                online.read(plan.dataset, every[:1], at_us[0], columns)
            )


def compare(
    plan: IndexPlan,
    messages: Sequence[Message],
    reads: tuple[Sequence[tuple[object, ...]], Sequence[int]],
    expected: Rows,
    memory: Memory | None,
    *,
    replays: bool | None = None,
) -> None:
    """Compare all columns with those of an index."""
    columns = [field.name for field in plan.fields]
    every, at_us = reads
    with OfflineReader(GivenTopics({plan.topic: messages}), [plan], [topic_of(plan)], memory=memory) as offline:
        # Columns are read one after the other, too, since each may have another way.
        for position, name in part_of([*enumerate(columns)]):
            values, found = offline.read(plan.dataset, every, at_us, [name])
            assert found == expected[1], name
            for row, (value, wanted) in enumerate(zip(values[0], expected[0][position], strict=True)):
                assert bits(value) == bits(wanted), (name, every[row], at_us[row], memory)
        assert bits(offline.read(plan.dataset, every, at_us, columns)) == bits(expected)
        if replays is not None:
            assert bool(offline._replayed) == replays


def keys_of(found: Case, job: Job) -> list[tuple[object, ...]]:
    keys: list[tuple[object, ...]] = [("a",), ("b",), ("never",)]
    match found.plan.window:
        case HoppingWindow(length_us=int(length_us), stride_us=stride_us):
            ends = [length_us + n * stride_us for n in range(-4, 10)]
            return [(*key, [end - length_us, end]) for key in keys for end in (*ends, 5)]
        case SessionWindow():
            bounds: list[Any] = [row["window"] for row in job.engine.rows(found.out.name)]
            return [(*key, window) for key in keys for window in (*bounds, [1, 2])]
        case _:
            return keys


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_aggregates_are_those_of_the_index(found: Case, store: IndexStore) -> None:
    rng = fresh_random()
    job = Job(found)
    messages = [message for _ in range(60) for message in job.log(random_change(found, rng))]
    # A job that starts again sends some records again, as further messages.
    repeated = [(key, value, 0, job.offset + n) for n, (key, value, _, _) in enumerate(rng.sample(messages, 20))]
    check(found.plan, [*messages, *repeated], store, keys_of(found, job), times(job, rng))


def numbers_of(name: str, *functions: str) -> tuple[Case, IndexPlan]:
    """Return a case with its aggregates of numbers by these functions, and its plan without the time."""
    found = next(case for case in CASES if case.name == name)
    time, known = found.source.timestamp, found.operator.aggregates
    chosen = tuple(spec for spec in known if spec.function in functions and not spec.unique and spec.of != time)
    small = Case("numbers", replace(found.operator, aggregates=chosen), keyed=found.keyed)
    return small, replace(small.plan, fields=tuple(field for field in small.plan.fields if field.name != time))


def test_continuous_windows_of_numbers_need_no_index(store: IndexStore) -> None:
    small, plan = numbers_of("events, continuous", "count", "sum", "average", "stddev", "variance", "min", "max")
    job, rng = Job(small), fresh_random()
    messages = [message for _ in range(40) for message in job.log(random_change(small, rng))]
    check(plan, messages, store, [("a",), ("b",), ("never",)], times(job, rng), replays=False)


KEYED = dataset(
    "Keyed", {"g": STRING, "d": DecimalType(2), **{name: COLUMNS[name] for name in "nxslpt"}}, keys=["g", "d"]
)


def versions_plan(*, revised: bool) -> IndexPlan:
    spec = replace(KEYED, index=IndexSpec(online=True, offline=True))
    (plan,) = plan_graph(Graph(datasets=(spec,))).indexes
    return replace(plan, revised=revised)


def random_versions(plan: IndexPlan, rng: random.Random, count: int, keys: Sequence[tuple[str, str]]) -> list[Message]:
    """Return puts and deletes of some keys; if the plan is revised, also retractions, and other keys of an identity."""
    codec = RecordCodec(plan.schema)
    messages: list[Message] = []
    # A revision of an identity has one content; a retraction may come at the revision of a put.
    revisions = [n.to_bytes(2) for n in range(count)]
    rng.shuffle(revisions)
    for offset in range(count):
        key = rng.choice(keys)
        values = random_change(CASES[0], rng).row
        row = [*key, *(values[column.name] for column in plan.schema.columns[2:])]
        op, identity, rev = rng.choice([PUT, PUT, PUT, DELETE]), None, None
        if plan.revised:
            op, again = rng.choice([op, op, RETRACT]), rng.randrange(offset + 1)
            identity, rev = position_id(rng.randrange(30), 0), revisions[again if op == RETRACT else offset]
        value = codec.encode_value(
            op=op,
            time_us=rng.randrange(24) * SECOND // 2,
            ingested_us=offset,
            row=None if op == RETRACT and rng.random() < 0.5 else row,
            record_id=identity,
            rev=rev,
        )
        messages.append((codec.encode_key(key), value, offset % 2, offset // 2))
    return messages


@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_versions_are_those_of_the_index(store: IndexStore, seed: int, *, revised: bool) -> None:
    plan = versions_plan(revised=revised)
    keys = [(g, d) for g in ("a", "b", "") for d in ("1.50", "-0.01")]
    messages = random_versions(plan, random.Random(seed), 80, keys)
    ats = [n * SECOND + more for n in range(-1, 13) for more in (0, -1)]
    check(plan, messages, store, [*keys, ("never", "0.00")], ats)
