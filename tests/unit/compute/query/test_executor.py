"""Tests of running plans over an index that is a dictionary."""

import time
from pathlib import Path
from typing import Any

import pytest

from caraway.compute.query.executor import MAX_PLANS, Answer
from caraway.errors import ExtractorError, InvalidInputError, UnknownEntityError
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import DictReader

HOUR = 3_600_000_000
OAK = {"pot": 1, "species": "oak", "size": 12.5, "bought": 0}
ELM = {"pot": 1, "species": "elm", "size": None, "bought": 2 * HOUR}


def reader() -> DictReader:
    return DictReader(
        {
            ("Pots", (1,)): [(0, OAK), (2 * HOUR, ELM)],
            ("Pots", (2,)): [(0, {"pot": 2, "species": "ash", "size": 3.0, "bought": 0})],
            ("Rules", ("elm",)): [(0, {"species": "elm", "text": "daily", "water": 3, "since": 0})],
            ("Moisture", (1,)): [(0, {"pot": 1, "mean": 0.25, "count": 4, "at": 0})],
            ("OnlineOnly", (1,)): [(0, {"pot": 1, "note": "leaks", "at": 0})],
        }
    )


def query(data: Any, outputs: list[str], inputs: tuple[str, ...] = ("Tap.pot",), at: list[int] | None = None) -> Answer:
    return garden.engine(reader()).plan(inputs, outputs).run(data, at)


def test_rows_and_columns_give_the_same() -> None:
    rows = query([{"Tap.pot": 1, "extra": 0}, {"Tap.pot": 9}], ["State.species", "State.size"])
    columns = query({"Tap.pot": [1, 9], "extra": []}, ["State.species", "State.size"])
    assert rows == columns == {"State.species": ["elm", "fern"], "State.size": [None, None]}


def test_a_default_stands_for_a_missing_key_and_for_null() -> None:
    answer = query([{"Tap.pot": 1}, {"Tap.pot": 7}], ["State.mean", "State.count", "State.score"])
    assert answer == {"State.mean": [0.25, -1.0], "State.count": [4, 0], "State.score": [8.0, 0.0]}
    assert [type(value) for value in answer["State.score"]] == [float, float]


@pytest.mark.spec("featuresets:2.7:4")
def test_python_extractors_look_up_and_their_undeclared_columns_are_dropped() -> None:
    answer = query([{"Tap.pot": 1}, {"Tap.pot": 2}], ["State.advice", "State.water"])
    assert answer == {"State.advice": ["daily", "none"], "State.water": [3, 0]}


def test_a_supplied_output_of_an_extractor_wins() -> None:
    answer = query(
        [{"State.species": "elm", "State.big": True, "State.water": 9}],
        ["State.advice", "State.water"],
        ("State.species", "State.big", "State.water"),
    )
    assert answer == {"State.advice": ["daily"], "State.water": [9]}


def test_each_row_is_read_at_its_own_time() -> None:
    answer = query([{"Tap.pot": 1}] * 3, ["State.species", "State.hour"], at=[-1, HOUR, 2 * HOUR])
    assert answer == {"State.species": ["fern", "oak", "elm"], "State.hour": [23, 1, 2]}


def test_a_time_of_ones_own_takes_an_offline_index() -> None:
    assert query([{"Tap.pot": 1}], ["Notes"]) == {"Notes.pot": [1], "Notes.note": ["leaks"]}
    with pytest.raises(InvalidInputError, match=r'OnlineOnly has no offline index.*@index\(offline="forever"\)'):
        query([{"Tap.pot": 1}], ["Notes"], at=[0])


def test_now_is_one_instant_for_all_rows() -> None:
    before = time.gmtime().tm_hour
    answer = query([{"Tap.pot": 1}] * 2, ["State.hour", "State.answer"])
    assert answer["State.hour"] in ([before] * 2, [(before + 1) % 24] * 2)
    assert answer["State.answer"] == [42, 42]


@pytest.mark.spec("featuresets:2.3:7")
def test_keys_are_cast_to_the_type_of_the_key_field_and_null_is_not_found() -> None:
    assert query([{"Tap.raw": "2"}], ["ByText.species"], ("Tap.raw",)) == {"ByText.species": ["ash"]}
    with pytest.raises(InvalidInputError, match=r"ByText.pot, row 1.*expected int"):
        query([{"Tap.raw": "2"}, {"Tap.raw": "two"}], ["ByText.species"], ("Tap.raw",))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"Tap.pot": [1], "Tap.raw": []}, "differ in length"),
        ([{"Tap.pot": 1}, {}], "row 1 has no value for the input Tap.pot"),
        ([{"Tap.pot": 1.5}], "input Tap.pot (int), row 0: expected int, found float 1.5"),
        ([{"Tap.pot": None}], "expected int, found null"),
        ([{"Tap.pot": 2**63}], "doesn't fit 64 bits"),
        ([3], "row 0 is int, an object is expected"),
        ({"pot": [1]}, "no column for the input Tap.pot"),
        ({"Tap.pot": 1}, "column Tap.pot is int, a list is expected"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_place(data: Any, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        query(data, ["State.species"], ("Tap.pot", "Tap.raw") if "Tap.raw" in data else ("Tap.pot",))
    assert said in str(raised.value)


def test_no_rows_give_empty_columns() -> None:
    assert query([], ["State.species", "State.advice"]) == {"State.species": [], "State.advice": []}


def test_as_many_timestamps_as_rows_are_needed() -> None:
    with pytest.raises(InvalidInputError, match="there are 1, but 2 rows"):
        query([{"Tap.pot": 1}] * 2, ["State.species"], at=[0])


def test_plans_are_kept_but_not_without_limit() -> None:
    engine = garden.engine(reader())
    first = engine.plan(["Tap.pot"], ["State.size"])
    assert engine.plan(["Tap.pot"], ["State.size"]) is first
    for number in range(MAX_PLANS):
        engine.plan(["Tap.pot"] * (2 + number), ["State.size"])
    assert engine.plan(["Tap.pot"], ["State.size"]) is not first


def test_lookup_gives_rows_by_key() -> None:
    found, data = garden.engine(reader()).lookup("Pots", [{"pot": 1}, {"pot": "8"}, {"pot": None}], [])
    assert found == [True, False, False]
    assert data == {
        "pot": [1, 8, None],
        "species": ["elm", None, None],
        "size": [None, None, None],
        "bought": ["1970-01-01T02:00:00Z", None, None],
    }


def test_lookup_at_times_and_of_single_fields() -> None:
    found, data = garden.engine(reader()).lookup("Pots", [{"pot": 1}] * 2, ["size"], ["1970-01-01T01:00:00Z", 3 * 3600])
    assert (found, data) == ([True, True], {"size": [12.5, None]})


@pytest.mark.parametrize(
    ("dataset", "keys", "fields", "timestamps", "error", "said"),
    [
        ("Pot", [{"pot": 1}], [], None, UnknownEntityError, "no dataset 'Pot'"),
        ("Readings", [{"pot": 1}], [], None, InvalidInputError, "Readings has no keys"),
        ("Pots", [{"pott": 1}], [], None, InvalidInputError, "key 'pot' is missing"),
        ("Pots", [{"pot": 1, "x": 1}], [], None, InvalidInputError, "'x' isn't a key"),
        ("Pots", [{"pot": 1}, {}], [], None, InvalidInputError, "row 1 has no value for key 'pot'"),
        ("Pots", [{"pot": "a"}], [], None, InvalidInputError, "row 0: expected int"),
        ("Pots", [{"pot": 1}], ["sise"], None, InvalidInputError, "no field 'sise'; did you mean size?"),
        ("Pots", [{"pot": 1}], [], [1, 2], InvalidInputError, "there are 2, but 1 rows"),
        ("Pots", [{"pot": 1}], [], ["soon"], InvalidInputError, "timestamps, row 0"),
        ("OnlineOnly", [{"pot": 1}], [], [1], InvalidInputError, "no offline index"),
    ],
)
def test_a_lookup_that_does_not_fit_is_refused(  # noqa: PLR0917 (the cases' columns)
    dataset: str, keys: Any, fields: Any, timestamps: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        garden.engine(reader()).lookup(dataset, keys, fields, timestamps)
    assert said in str(raised.value)


@pytest.mark.spec(*(f"featuresets:2.7:{row}" for row in (1, 2, 3, 5, 8, 9)))
@pytest.mark.parametrize(
    ("feature", "said"),
    [
        ("number", "extractor give_number of featureset Faulty returned int; a pandas Series or DataFrame"),
        ("misnamed", "misnamed isn't among the columns that it returned (another)"),
        ("broken", "extractor explode of featureset Faulty raised ZeroDivisionError: division by zero"),
        ("nameless", "give_no_name of featureset Faulty returned a series without a name"),
        ("short", "short has 1 rows, the inputs (Tap.pot) have 2"),
        ("wrong", "wrong is declared int, but the column is"),
        ("nulls", "nulls is declared int, but row 0 is null"),
        ("forbidden", "looks up Pots, which isn't among its deps (none)"),
        ("small", "row 1: expected between(int, 0, 5, False, False), found int 6"),
    ],
)
def test_an_extractor_that_breaks_its_contract_is_named(feature: str, said: str) -> None:
    with pytest.raises(ExtractorError) as raised:
        query([{"Tap.pot": 1}, {"Tap.pot": 2}], [f"Faulty.{feature}"])
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("feature", "line"),
    [
        ("broken", "return pot // 0 if pot.empty else 1 / 0"),
        ("misnamed", "def misname(cls, ts, pot):"),
        ("number", "def give_number(cls, ts, pot):"),
        ("forbidden", "return Pots.lookup("),
    ],
)
def test_the_error_of_an_extractor_has_the_line_of_its_definition(feature: str, line: str) -> None:
    file = Path(garden.__file__)
    (number,) = (at for at, text in enumerate(file.read_text().splitlines(), 1) if text.strip().startswith(line))
    # The first line of a function is that of its first decorator.
    number -= 3 if line.startswith("def") else 0
    # A refused lookup says itself what to do.
    remedy = "$" if feature == "forbidden" else "; correct the function and commit it with a greater version$"
    with pytest.raises(ExtractorError, match=rf" \({file.name}:{number}\){remedy}"):
        query([{"Tap.pot": 1}], [f"Faulty.{feature}"])


@pytest.mark.spec("featuresets:2.7:6", "featuresets:2.7:7")
def test_labels_that_are_a_permutation_decide_and_others_do_not() -> None:
    answer = query([{"Tap.pot": 1}, {"Tap.pot": 2}], ["Faulty.shuffled", "Faulty.shifted"])
    assert answer == {"Faulty.shuffled": [1, 2], "Faulty.shifted": [1, 2]}


def test_all_that_is_wrong_with_an_extractor_is_told_at_once() -> None:
    with pytest.raises(ExtractorError) as raised:
        query([{"Tap.pot": 1}], ["Faulty.first", "Faulty.second"])
    assert "first is declared int" in str(raised.value)
    assert "second isn't among" in str(raised.value)
