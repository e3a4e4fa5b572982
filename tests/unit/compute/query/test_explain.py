"""Tests that the explanation of a query has the steps that run, each after the steps whose columns it reads."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.explain import QueryExplained, analyze, explain
from caraway.errors import ExtractorError, InvalidInputError
from tests.effort import examples
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import DictReader

OUTPUTS = ["State.species", "State.size", "State.big", "State.score", "State.advice"]


def engine() -> tuple[QueryEngine, DictReader]:
    reader = DictReader({})
    return garden.engine(reader), reader


def test_steps_tell_what_they_read_and_after_which_others() -> None:
    explained = explain(engine()[0].plan(["Tap.pot"], OUTPUTS))
    by_title = {step.title: step for step in explained.steps}
    pots, extractor = by_title["Pots by pot"], by_title["State.advise"]
    assert pots.kind == "index read"
    assert pots.details == ("State.species = species, 'fern' if null", "State.size = size")
    assert (extractor.kind, extractor.details) == ("extractor", ("may look up Rules",))
    assert extractor.reads == ("State.species", "State.big")
    assert pots.number in extractor.after
    assert by_title["State.pot = Tap.pot"].after == ()
    assert any('State.score = (col("count") * 2)' in detail for step in explained.steps for detail in step.details)
    assert [(column.name, column.type) for column in explained.inputs] == [("Tap.pot", "int")]
    assert [column.name for column in explained.outputs] == OUTPUTS
    assert (explained.rows, explained.runs, explained.took) == (None, 0, None)


FEATURES = sorted(name for name in garden.CATALOG.features if name.startswith(("State.", "Notes.")))


@settings(max_examples=examples(40))
@given(st.lists(st.sampled_from(FEATURES), min_size=1, unique=True))
def test_each_step_comes_after_what_it_needs(outputs: list[str]) -> None:
    explained = explain(engine()[0].plan(["Tap.pot"], outputs))
    there = {column.name: 0 for column in explained.inputs}
    for step in explained.steps:
        assert set(step.reads) <= there.keys()
        assert set(step.after) == {there[name] for name in step.reads} - {0}
        there |= dict.fromkeys(step.adds, step.number)
    assert {column.name for column in explained.outputs} <= there.keys()


def test_one_read_serves_all_fields_of_a_dataset() -> None:
    queries, reader = engine()
    explained = analyze(queries.plan(["Tap.pot"], OUTPUTS), {"Tap.pot": [1, 2]}, None, runs=1)
    asked = [dataset for dataset, _, _ in reader.calls]
    # The lookup of `Rules` inside an extractor is the only one that isn't a step.
    assert sorted(asked) == ["Moisture", "Pots", "Rules"]
    assert sorted(s.title for s in explained.steps if s.kind == "index read") == ["Moisture by pot", "Pots by pot"]


def test_times_are_of_each_part_and_of_all() -> None:
    queries, _ = engine()
    explained = analyze(queries.plan(["Tap.pot"], OUTPUTS), {"Tap.pot": [1, 2]}, None, runs=5)
    assert (explained.rows, explained.runs) == (2, 5)
    parts = [explained.inputs_took, *(step.took for step in explained.steps), explained.answer_took]
    assert explained.took is not None
    least = 0.0
    for part in parts:
        assert part is not None
        assert 0 <= part.least_ms <= part.median_ms <= part.most_ms <= explained.took.most_ms
        least += part.least_ms
    # Each part is rounded to a tenth of a microsecond.
    assert least <= explained.took.least_ms + 0.001 * len(parts)


def test_no_rows_take_no_steps() -> None:
    explained = analyze(engine()[0].plan(["Tap.pot"], OUTPUTS), {"Tap.pot": []}, None, runs=2)
    assert explained.rows == 0
    assert {step.took.most_ms for step in explained.steps if step.took is not None} == {0.0}


def test_a_query_that_fails_fails_here_too() -> None:
    queries, _ = engine()
    with pytest.raises(ExtractorError, match="explode"):
        analyze(queries.plan(["Tap.pot"], ["Faulty.broken"]), {"Tap.pot": [1]}, None, runs=3)
    with pytest.raises(InvalidInputError, match="null"):
        analyze(queries.plan(["Tap.pot"], ["Tap.pot"]), {"Tap.pot": [None]}, None, runs=1)


def test_programs_get_all_of_it() -> None:
    explained = analyze(engine()[0].plan(["Tap.pot"], OUTPUTS), {"Tap.pot": [1]}, None, runs=1)
    assert msgspec.convert(json.loads(msgspec.json.encode(explained)), QueryExplained) == explained
