"""Windows that close by the clock: the index answers and emits as the in-process engine does at the same time."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.closing_time import advance_clock_time, stored_clock_time, stored_closing_time
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import RecordCodec
from caraway.graph.plan.model import IndexPlan
from tests.effort import examples
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, case, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import DISCRETE, EXACT, FOREVER_HOPPING, HOPPING, LATE, compare
from tests.unit.dataplane.index.test_emission import Fickle, Process, Topic, check_rows, few, rows_of, some

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

CASES = [
    few(case("events", DISCRETE, by_clock=True)),
    few(case("events, with a lookback", LATE, by_clock=True)),
    few(case("events along a column", DISCRETE, along=True, by_clock=True)),
    few(case("a table, forever", (FOREVER_HOPPING,), keyed=True, by_clock=True)),
    few(case("a table along a column", LATE, keyed=True, along=True, by_clock=True)),
    few(case("windows as keys", (None,), groupby=HOPPING, by_clock=True)),
    few(case("windows as keys, with a lookback", (None,), groupby=LATE[1], by_clock=True)),
    case("windows alone", (), groupby=HOPPING, bare=True, by_clock=True),
]
FICKLE = [found for found in CASES if not found.keyed]


def tick(found: Case, plan: IndexPlan, store: IndexStore, rng: random.Random) -> None:
    """Move the present on, before or after the rows and their windows, and the clock time with it."""
    found.now_us = max(found.now_us, rng.randrange(-12, 90) * SECOND // 2 + rng.choice([0, 0, 1, -1, 400_000]))
    advance_clock_time(store, plan.asset, found.now_us)


@pytest.mark.parametrize("found", some(CASES, 0))
def test_the_index_answers_as_the_engine_does_at_the_same_time(found: Case, tmp_path: Path) -> None:
    rng, job = fresh_random(), Job(replace(found))
    waiting = [message for _ in range(20) for message in job.log(random_change(found, rng))]
    rng.shuffle(waiting)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        writer, reader = IndexWriter(store, cached_tiles=8), IndexReader(store)
        while waiting:
            assert not writer.apply(found.plan, waiting[:7]).refused
            waiting = waiting[7:]
            if not waiting or rng.random() < 0.5:
                tick(job.case, found.plan, store, rng)
        for _ in range(examples(4)):
            tick(job.case, found.plan, store, rng)
            asked = [rng.randrange(-6, 60) * SECOND + rng.choice([0, 0, 1, -1]) for _ in range(3)]
            compare(found, job, reader, [*asked, 10**15], exact=True)


def check(found: Case, job: Any, changes: list[Any], tmp_path: Path, rng: random.Random) -> None:
    """Deliver changes while the clock goes on, with kills; what was emitted are the engine's rows of the end."""
    topic = rows_of(found)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        process = Process(found, topic, store, Topic(topic, rng))
        rng.shuffle(changes)
        while changes:
            size = rng.choice([1, 3, 20])
            process.apply(changes[:size])
            changes = changes[size:]
            if rng.random() < 0.5:
                tick(found, process.plan, store, rng)
                process.apply([])
        tick(found, process.plan, store, rng)
        process.settle()
        check_rows(found, process.arrived, job() if callable(job) else job.engine)


@pytest.mark.parametrize("seed", range(examples(2)))
@pytest.mark.parametrize("found", some(CASES, 1))
def test_what_is_emitted_are_the_rows_of_the_engine_at_the_same_time(found: Case, seed: int, tmp_path: Path) -> None:
    rng, own = fresh_random(), replace(found)
    job = Job(own)
    check(own, job, [message for _ in range(10 + seed) for message in job.log(random_change(own, rng))], tmp_path, rng)


@pytest.mark.parametrize("found", some(FICKLE, 2))
def test_retracted_inputs_are_retracted_downstream(found: Case, tmp_path: Path) -> None:
    rng, own = fresh_random(), replace(found)
    own.plan = replace(found.plan, revised=True)
    fickle = Fickle(own)
    check(own, fickle.engine, [fickle.change(rng) for _ in range(10)], tmp_path, rng)


@pytest.mark.parametrize("by_clock", [True, False])
def test_rows_that_the_clock_closes_are_known_from_its_time_on(by_clock: bool, tmp_path: Path) -> None:
    found = case("windows alone", (), groupby=HOPPING, bare=True, by_clock=by_clock)
    job, topic, rng = Job(found), rows_of(found), random.Random(0)
    codec = RecordCodec(topic.schema)
    with IndexStore(tmp_path / "index", geometry=EXACT, cache_bytes=1 << 20) as store:
        process = Process(found, topic, store, Topic(topic, rng, kills=0.0))
        process.apply(job.log(replace(random_change(found, rng), time_us=SECOND)))
        assert process.arrived.records == []
        advance_clock_time(store, process.plan.asset, 9 * SECOND)
        process.settle()
        known = [codec.decode_value(value).ingested for _, value in process.arrived.records]
    # The bucket from 0 s to 7 s and the one that began before it, with the row of 1 s, are closed at 9 s.
    assert known == ([9 * SECOND] * 2 if by_clock else [])


def test_the_clock_time_never_goes_back_and_goes_with_its_index(tmp_path: Path) -> None:
    asset = b"an asset"
    for _ in range(2):
        with IndexStore(tmp_path / "index", cache_bytes=1 << 20) as store:
            advance_clock_time(store, asset, 7)
            advance_clock_time(store, asset, 5)
            assert stored_clock_time(store, asset) == stored_closing_time(store, asset) == 7
    with IndexStore(tmp_path / "index", cache_bytes=1 << 20) as store:
        store.drop(asset)
        assert stored_closing_time(store, asset) is None
        advance_clock_time(store, asset, 5)
        assert stored_clock_time(store, asset) == 5
