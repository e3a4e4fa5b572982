"""Estimates of plans: they add up, grow with the rates, and say where more shards are no use."""

# mypy: disable-error-code="arg-type"

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.demo.example import load_example
from caraway.client.client import build_graph
from caraway.errors import InvalidInputError
from caraway.graph.plan.capacity import BUSY, SHARDS, Capacity, Load, UnitCosts, capacity
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph


def demo() -> GraphPlan:
    example = load_example()
    return plan_graph(build_graph(example.datasets, example.featuresets))


PLAN = demo()
SOURCES = sorted({ingest.dataset.name for ingest in PLAN.ingests})


def load(rate: float, *, hottest: float = 0.0, queries: float = 0.0, query_rows: int = 1) -> Load:
    rates = dict.fromkeys(SOURCES, rate)
    return Load(rates=rates, keys={}, hottest=hottest, queries=queries, query_rows=query_rows)


def part(found: Capacity, name: str) -> float:
    return next(part.cores for part in found.parts if part.name == name)


def test_each_job_and_index_is_a_part_and_the_sum_is_that_of_the_parts() -> None:
    found = capacity(PLAN, load(1000.0))
    names = [part.name for part in found.parts]
    assert len(set(names)) == len(names) == len(PLAN.jobs) + len(PLAN.indexes) + 4
    assert {f"job {job.dataset}.{job.pipeline}" for job in PLAN.jobs} < set(names)
    assert found.cores == pytest.approx(sum(part.cores for part in found.parts))
    assert found.bytes == pytest.approx(sum(part.bytes for part in found.parts))


@given(st.floats(1, 1e6), st.floats(1, 10))
def test_processor_time_grows_as_the_rates_do(rate: float, times: float) -> None:
    one, more = capacity(PLAN, load(rate)), capacity(PLAN, load(rate * times))
    assert more.cores == pytest.approx(one.cores * times)


@given(st.floats(1, 1e6), st.floats(0, 1))
def test_so_many_shards_as_are_needed_suffice_and_one_less_does_not(rate: float, hottest: float) -> None:
    found = capacity(PLAN, load(rate, hottest=hottest))
    busy = found.shards[0].busiest

    def busiest(shards: int) -> float:
        return busy * (hottest + (1 - hottest) / shards)

    if found.needed_shards is None:
        assert busiest(10**9) >= BUSY
    else:
        assert busiest(found.needed_shards) <= BUSY * 1.000001
        assert found.needed_shards == 1 or busiest(found.needed_shards - 1) > BUSY


def test_without_a_hot_key_shards_never_bend_and_with_one_they_do() -> None:
    even, uneven = (capacity(PLAN, load(50_000.0, hottest=share)).shards for share in (0.0, 0.1))
    assert [one.shards for one in even] == list(SHARDS)
    assert not any(one.bends for one in even)
    assert [one.shards for one in uneven if one.bends] == [16, 32, 64]


def test_an_index_of_many_keys_costs_more_and_the_measured_ends_are_kept() -> None:
    unit = UnitCosts()
    assert (unit.index(1), unit.index(1_000), unit.index(1e6), unit.index(1e9)) == (12.0, 12.0, 26.0, 26.0)
    assert unit.index(1e3) < unit.index(1e4) < unit.index(1e5) < unit.index(1e6)


def test_a_divided_index_makes_queries_call_other_servers() -> None:
    whole = part(capacity(PLAN, load(10.0, queries=1000.0, query_rows=10)), "queries")
    divided = part(capacity(PLAN, load(100_000.0, queries=1000.0, query_rows=10)), "queries")
    assert whole == pytest.approx(1000 * (230 + 9 * 33) / 1e6)
    assert divided > whole


@pytest.mark.parametrize("rows", [1, 2, 30, 100])
def test_a_query_calls_each_other_server_that_has_one_of_its_keys(rows: int) -> None:
    found, unit = capacity(PLAN, load(500_000.0, queries=1e6, query_rows=rows)), UnitCosts()
    shards, random = found.needed_shards, Random(7)
    assert shards is not None
    assert shards > 16
    calls = (part(found, "queries") - unit.query - (rows - 1) * unit.query_row) / unit.call
    # Shard 0 is that of the server that is asked.
    called = [{random.randrange(shards) for _ in range(rows)} - {0} for _ in range(2_000)]
    assert calls == pytest.approx(sum(map(len, called)) / len(called), rel=0.03)


def test_an_archive_that_one_process_cannot_write_is_told() -> None:
    notes = [next(p.note for p in capacity(PLAN, load(rate)).parts if p.name == "archive") for rate in (10.0, 1e6)]
    assert notes == ["", "more than its one process takes"]


def test_rows_are_kept_as_long_as_the_longest_window_needs_them() -> None:
    short = replace(load(10.0), days=1.0)
    assert capacity(PLAN, short).bytes < capacity(PLAN, replace(short, days=2.0)).bytes
    assert math.isfinite(capacity(PLAN, replace(short, days=3650.0)).bytes)


def test_a_dataset_with_a_source_needs_a_rate_and_names_are_those_of_datasets() -> None:
    with pytest.raises(InvalidInputError, match=r"its rate must be given: --rate \w+=1000"):
        capacity(PLAN, Load(rates={}, keys={}))
    with pytest.raises(InvalidInputError, match="no dataset is called Nothing; there are"):
        capacity(PLAN, replace(load(1.0), keys={"Nothing": 1.0}))
