"""Explanations of plans: each step, the state that it keeps, and shared topics and steps."""

# Type checkers see classes where decorators return datasets.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator"
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from caraway.apps.demo.example import load_example
from caraway.client.client import build_graph
from caraway.graph.operators import (
    OPERATOR_TYPES,
    Changelog,
    Dedup,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Select,
    Union,
)
from caraway.graph.plan.explain import PlanExplained, StepExplained, explain
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.plan.slots import slots_of, tasks_of
from caraway.graph.plan.steps import text_of
from caraway.graph.trees import parents
from tests.unit.datasets.shop import Orders, Users, Visits


@pytest.fixture(scope="module")
def plan() -> GraphPlan:
    example = load_example()
    return plan_graph(build_graph(example.datasets, example.featuresets))


@pytest.fixture(scope="module")
def explained(plan: GraphPlan) -> PlanExplained:
    return explain(plan, partitions=3)


def steps(step: StepExplained) -> Iterator[StepExplained]:
    yield step
    for before in step.steps:
        yield from steps(before)


def operators(operator: Operator) -> Iterator[Operator]:
    yield operator
    for parent in parents(operator):
        yield from operators(parent)


def test_every_job_is_explained_with_its_steps_mode_and_topics(plan: GraphPlan, explained: PlanExplained) -> None:
    assert [job.job_id for job in explained.jobs] == [job.job_id for job in plan.jobs]
    for job, shown in zip(plan.jobs, explained.jobs, strict=True):
        assert [step.text for step in steps(shown.step)] == [text_of(step) for step in operators(job.operator)]
        assert (shown.mode, shown.mode_reason, shown.horizon) == ("real-time", job.mode_reason, "14d")
        assert (shown.reads, shown.writes) == (tuple(topic.name for topic in job.inputs), job.output.name)


def test_steps_with_state_are_explained_with_state_and_duration(plan: GraphPlan, explained: PlanExplained) -> None:
    for job, shown in zip(plan.jobs, explained.jobs, strict=True):
        for operator, step in zip(operators(job.operator), steps(shown.step), strict=True):
            if isinstance(operator, (Join, Dedup, Changelog, First)):
                assert "14d" in step.state
            if isinstance(operator, Input):
                assert step.state == ""
    away = next(job for job in explained.jobs if job.dataset == "AircraftAway")
    assert "take its aggregate input back" in away.step.state


def test_columns_that_nobody_needs_are_named(explained: PlanExplained) -> None:
    unread = {job.dataset: {part.dataset: part.columns for part in job.unread} for job in explained.jobs}
    assert unread["AircraftAway"] == {"LastDepartures": ("delay",)}
    assert unread["FlightConditions"] == {}


def test_right_hand_columns_that_are_not_taken_are_unread_unless_taken_elsewhere(plan: GraphPlan) -> None:
    with_weather = next(job for job in plan.jobs if job.dataset == "FlightConditions")
    join = with_weather.operator.of  # type: ignore[union-attr]
    assert isinstance(join, Join)

    def unread(operator: Operator) -> list[str]:
        changed = GraphPlan(jobs=(replace(with_weather, operator=operator),))
        (job,) = explain(changed, partitions=1).jobs
        return [column for part in job.unread if part.dataset == "Weather" for column in part.columns]

    windy = replace(join, fields=("wind",))
    assert unread(windy) == ["temperature", "precipitation", "visibility"]
    assert unread(Union(left=windy, right=Input(dataset="Weather"))) == []


def test_a_job_holds_a_slot_for_each_partition_of_what_it_reads_and_keeps(plan: GraphPlan) -> None:
    held = {job.dataset: job.slots for job in explain(plan, partitions=2).jobs}
    # AircraftAway has departures and its kept rows; FlightConditions two topics and the join.
    assert (held["AircraftAway"], held["FlightConditions"]) == (4, 6)
    assert explain(plan, partitions=1).slots * 2 == sum(held.values())


def test_a_join_of_tables_keeps_its_left_side_twice(plan: GraphPlan) -> None:
    job = next(job for job in plan.jobs if job.dataset == "FlightConditions")
    join = job.operator.of  # type: ignore[union-attr]
    assert isinstance(join, Join)
    keyed = replace(join, left=Latest(of=join.left, keys=("origin",)))
    events, table = replace(job, operator=join), replace(job, operator=keyed)
    assert slots_of(table, partitions=1, tasks=3) == slots_of(events, partitions=1, tasks=3) + 3


@pytest.mark.parametrize(
    ("dataset", "partitions", "processors", "count"),
    [
        # A join works more than it reads, so it gets more tasks than partitions, up to a bound.
        ("FlightConditions", 1, 1, 1),
        ("FlightConditions", 1, 2, 2),
        ("FlightConditions", 1, 64, 4),
        ("FlightConditions", 8, 64, 8),
        # There are never more tasks than processors, if their number is known.
        ("FlightConditions", 8, 2, 2),
        ("AircraftAway", 8, 2, 2),
        ("FlightConditions", 8, None, 8),
        # A step that looks at an adjacent row gets no more tasks than partitions.
        ("AircraftAway", 1, 64, 1),
    ],
)
def test_steps_that_keep_rows_have_as_many_tasks_as_pays(
    plan: GraphPlan, dataset: str, partitions: int, processors: int | None, count: int
) -> None:
    job = next(job for job in plan.jobs if job.dataset == dataset)
    assert tasks_of(job, partitions=partitions, processors=processors).count == count
    shown = explain(GraphPlan(jobs=(job,)), partitions=partitions, processors=processors).jobs[0]
    assert shown.tasks == count
    assert shown.tasks_reason


def test_every_topic_is_explained_with_its_writers_and_readers(explained: PlanExplained) -> None:
    topics = {topic.dataset: topic for topic in explained.topics}
    departures, weather = topics["Departures"], topics["Weather"]
    assert departures.writers == ("webhook flights/departures",)
    assert [reader.split(".")[0] for reader in departures.readers] == [
        "job OriginDelays",
        "job CarrierPunctuality",
        "job LastDepartures",
    ]
    assert weather.readers[-1] == "index of Weather"
    assert (weather.kind, weather.keys, weather.partitions) == ("versions", ("airport",), 3)
    assert any(line.startswith(f"topic {departures.name}: read by job OriginDelays") for line in explained.shared)
    assert not any("Planes" in line for line in explained.shared)


def test_indexes_are_explained_with_keys_and_values(explained: PlanExplained) -> None:
    delays = next(index for index in explained.indexes if index.dataset == "OriginDelays")
    assert delays.kind == "aggregate"
    assert delays.keys == ("origin",)
    assert 'max_6h = max(delay, Continuous("6h"))' in delays.values


def test_every_operator_has_a_text() -> None:
    chains = [
        Orders.filter(lambda frame: frame["price"] > 1).assign("low", bool, _opaque).transform(_opaque),
        Orders.dedup(by=["user"]).groupby("user").first(),
        Orders.drop("price").rename({"user": "who"}),
        Visits.explode("tags").dropnull("seen"),
        Orders.join(Users, how="left", on=["user"], fields=["town"]),
        Orders.select("user", "price") + Orders.select("user", "price"),
    ]
    shown = {text_of(operator).split()[0] for chain in chains for operator in operators(chain.node_operator)}
    assert {
        "read",
        "filter",
        "assign",
        "transform",
        "dedup",
        "first",
        "drop",
        "rename",
        "left",
        "union",
        "explode",
        "dropnull",
    } <= shown
    assert len(OPERATOR_TYPES) == 18, "a new operator: give it a text, and say what it keeps"


def test_work_that_several_jobs_repeat_is_named(plan: GraphPlan) -> None:
    job = next(job for job in plan.jobs if job.dataset == "FlightConditions")
    twice = GraphPlan(topics=plan.topics, jobs=(job, job), indexes=(), ingests=())
    repeated = [line for line in explain(twice, partitions=1).shared if line.startswith("not shared")]
    assert repeated == [
        (
            "not shared: 2 jobs do `left join with Weather on origin = airport` over the same input; "
            "a dataset of its own would do it once"
        )
    ]


def test_work_counts_as_repeated_whatever_columns_are_taken_of_it(plan: GraphPlan) -> None:
    job = next(job for job in plan.jobs if job.dataset == "FlightConditions")
    join = job.operator.of  # type: ignore[union-attr]
    assert isinstance(join, Join)
    fewer = replace(join, left=Select(of=join.left, columns=("origin",)), fields=("wind",))
    twice = GraphPlan(jobs=(job, replace(job, operator=fewer)))
    assert [line.split("`")[0] for line in explain(twice, partitions=1).shared] == ["not shared: 2 jobs do "]


def _opaque(frame: Any) -> Any:
    return frame["price"].map(lambda price: price < 10)
