"""The history that new jobs have to read, as a commit reports it."""

from dataclasses import replace

import pytest

from caraway.apps.server.control.backfill_estimates import (
    PLAIN_RATE,
    PYTHON_RATE,
    START_S,
    START_S_PER_JOB,
    STATEFUL_RATE,
    estimate_backfills,
    rate,
)
from caraway.graph.operators import Changelog, Dedup, Drop, First, Input, Operator
from caraway.graph.plan.model import GraphPlan, JobMode
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.process.estimates import duration
from tests.unit.apps.server.control.graphs import clicks, spend

PLAN = plan_graph(Graph(datasets=(clicks(), spend())))
(JOB,) = PLAN.jobs
(CLICKS,) = JOB.inputs
CLICKED = Input(dataset="Clicks")


def test_a_new_job_reads_the_records_of_its_topics() -> None:
    (found,) = estimate_backfills(PLAN, {JOB.job_id}, {CLICKS.name: 5 * STATEFUL_RATE, "another": 7})
    assert (found.name, found.records) == (JOB.job_id, 5 * STATEFUL_RATE)
    assert found.seconds == START_S + START_S_PER_JOB + 5.0
    assert estimate_backfills(PLAN, set(), {CLICKS.name: 5}) == ()
    (found,) = estimate_backfills(PLAN, {JOB.job_id}, {})
    assert found.records == 0


def test_a_job_behind_a_new_one_waits_for_it() -> None:
    other = replace(CLICKS, name="other")
    second = replace(JOB, job_id="second", inputs=(JOB.output,), output=other, mode=JobMode.MICRO_BATCH)
    plan = GraphPlan(topics=PLAN.topics, jobs=(second, JOB), indexes=(), ingests=())
    records = {CLICKS.name: 2 * STATEFUL_RATE, JOB.output.name: 10}
    found = {each.name: each for each in estimate_backfills(plan, {JOB.job_id, "second"}, records)}
    assert found["second"].records == found[JOB.job_id].records == 2 * STATEFUL_RATE
    # Both jobs are started at once, so their starts count once for each of them.
    start_s = START_S + 2 * START_S_PER_JOB
    assert found[JOB.job_id].seconds == start_s + 2.0
    assert found["second"].seconds == start_s + 2.0 + 2 * STATEFUL_RATE / PYTHON_RATE
    # With only the second job new, the records of its own input topic count.
    (found_second,) = estimate_backfills(plan, {"second"}, records)
    assert found_second.records == 10


@pytest.mark.parametrize(
    ("operator", "found"),
    [
        (Drop(of=CLICKED, columns=("amount",)), PLAIN_RATE),
        (Dedup(of=CLICKED, by=("user",)), STATEFUL_RATE),
        (First(of=CLICKED, keys=("user",)), STATEFUL_RATE),
        (Drop(of=First(of=CLICKED, keys=("user",)), columns=("amount",)), STATEFUL_RATE),
        (Changelog(of=CLICKED, column="deleted", marks_inserts=False), STATEFUL_RATE),
    ],
)
def test_a_step_that_keeps_rows_makes_a_backfill_slower(operator: Operator, found: int) -> None:
    assert rate(replace(JOB, operator=operator)) == found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.01, "about 1 s"),
        (119.0, "about 119 s"),
        (120.0, "about 2 min"),
        (7000.0, "about 117 min"),
        (9e4, "about 25 h"),
    ],
)
def test_durations_are_one_number(seconds: float, text: str) -> None:
    assert duration(seconds) == text
