"""Tests of the resolution of queries: the steps that lead from the inputs to the outputs."""

import pytest

from caraway.compute.query.catalog import Catalog
from caraway.compute.query.model import AliasStep, ExpressionStep, LookupStep, PythonStep, QueryPlan
from caraway.compute.query.planner import plan_query
from caraway.errors import InvalidInputError, UnknownEntityError
from tests.unit.compute.query import garden

CATALOG = Catalog("1", garden.graph())


def plan(inputs: list[str], outputs: list[str]) -> QueryPlan:
    return plan_query(CATALOG, inputs, outputs)


def test_all_fields_of_a_dataset_with_one_key_are_one_read() -> None:
    steps = plan(["Tap.pot"], ["State.species", "State.size", "State.mean", "State.count"]).steps
    reads = [step for step in steps if isinstance(step, LookupStep)]
    assert [(r.dataset, [f.field for f in r.features]) for r in reads] == [
        ("Pots", ["species", "size"]),
        ("Moisture", ["mean", "count"]),
    ]


def test_a_step_comes_after_what_it_reads() -> None:
    steps = plan(["Tap.pot"], ["State.advice"]).steps
    assert [type(step) for step in steps] == [AliasStep, LookupStep, ExpressionStep, PythonStep]


def test_a_supplied_feature_suppresses_what_only_it_needs() -> None:
    assert plan(["State.species", "State.big"], ["State.species"]).steps == ()
    steps = plan(["State.species", "State.big"], ["State.advice"]).steps
    assert [type(step) for step in steps] == [PythonStep]


def test_an_extractor_runs_once_and_the_supplied_output_is_not_kept() -> None:
    steps = plan(["State.species", "State.big", "State.water"], ["State.advice", "State.water"]).steps
    assert len(steps) == 1
    assert isinstance(steps[0], PythonStep)
    assert steps[0].kept == ("State.advice",)


def test_a_featureset_stands_for_its_features_in_order_and_each_appears_once() -> None:
    outputs = [column.name for column in plan(["Tap.pot"], ["State.big", "State", "State.pot"]).outputs]
    assert outputs[0] == "State.big"
    assert outputs[1:4] == ["State.pot", "State.species", "State.size"]
    assert len(outputs) == len(set(outputs)) == 11


@pytest.mark.parametrize(
    ("inputs", "outputs", "error", "said"),
    [
        ([], ["State.advice"], InvalidInputError, ["Tap.pot", "State.advice <- State.species <- State.pot <- Tap.pot"]),
        (["Tap.pot"], ["Tap.litres"], InvalidInputError, ["Tap.litres"]),
        (["Tap.pot"], ["State.sise"], UnknownEntityError, ["State.sise", "State.size"]),
        (["Tap.pot"], ["Stat"], UnknownEntityError, ["Stat", "State"]),
        (["Tap.pott"], ["State.size"], UnknownEntityError, ["inputs", "Tap.pott", "Tap.pot"]),
        (["Tap"], ["State.size"], InvalidInputError, ["Tap is a featureset", "Tap.pot"]),
        (["Tap.pot"], [""], UnknownEntityError, ["''"]),
        (["Tap.pot"], ["State."], UnknownEntityError, ["State."]),
    ],
)
def test_what_cannot_be_resolved_is_named(
    inputs: list[str], outputs: list[str], error: type[Exception], said: list[str]
) -> None:
    with pytest.raises(error) as raised:
        plan(inputs, outputs)
    for words in said:
        assert words in str(raised.value)
