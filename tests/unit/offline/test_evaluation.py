"""Rows of an offline query that fail don't keep the others from their results, wherever they are."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from caraway.compute.query.executor import CompiledPlan
from caraway.offline.queries.evaluation import Evaluated, before_its_time, evaluate
from caraway.offline.queries.inputs import InputPart
from tests.unit.compute.query.garden import DictReader, engine

T = 1_700_000_000_000_000
FIRST = 40_000


def pots(count: int) -> DictReader:
    """Return a reader with pots that have got another species an hour before T, and a third one an hour after it."""
    hour = 3_600_000_000

    def row(pot: int, species: str) -> dict[str, Any]:
        return {"pot": pot, "species": species, "size": float(pot), "bought": T}

    return DictReader(
        {
            ("Pots", (pot,)): [(T - hour, row(pot, f"old{pot}")), (T + hour, row(pot, f"new{pot}"))]
            for pot in range(count)
        }
    )


def plan(*outputs: str, given: Sequence[str] = ("Tap.pot",)) -> CompiledPlan:
    return engine(pots(8)).plan(given, outputs)


def part(pots: Sequence[object], timestamps: Sequence[object] | None = None) -> InputPart:
    return InputPart({"Tap.pot": list(pots)}, pa.table({}), timestamps=timestamps or [T] * len(pots))


def evaluated(compiled: CompiledPlan, rows: InputPart) -> Evaluated:
    found = evaluate(compiled, rows, FIRST)
    assert found is not None
    return found


def test_rows_may_see_what_was_there_before_their_times() -> None:
    hour = 3_600_000_000
    compiled = plan("State.species")
    earlier = before_its_time(lambda rows, first, interrupted: evaluate(compiled, rows, first, interrupted))
    times: list[Any] = [T + hour, T + hour + 1, None, "soon"]
    found = earlier(part([1] * 4, times), FIRST, lambda: False)
    assert found is not None
    assert found.columns["State.species"].to_pylist() == ["old1", "new1", None, None]
    assert found.times == [T + hour, T + hour + 1, None, None], "the times of the results are those that were given"
    now = evaluated(compiled, part([1] * 4, times))
    assert now.columns["State.species"].to_pylist() == ["new1", "new1", None, None]
    assert found.errors == now.errors


@pytest.mark.parametrize(("late_us", "share"), [(0, 0.0), (3_600_000_000, 1.0), (3_600_000_001, 0.0)])
def test_rows_that_see_their_own_event_are_counted(late_us: int, share: float) -> None:
    rows = part(list(range(8)), [T + late_us] * 8)
    compiled = plan("State.species")
    later = evaluate(compiled, rows, FIRST)
    assert later is not None
    first = evaluate(compiled, rows, 0)
    assert first is not None
    assert (first.own_events, later.own_events) == (share, 0.0), "only the first rows of a query are looked at"
    half = evaluate(compiled, part([1] * 4, [T + late_us, T + late_us, T + 1, None]), 0)
    assert half is not None
    assert half.own_events == pytest.approx(2 / 3 * share)
    earlier = before_its_time(lambda asked, begin, interrupted: evaluate(compiled, asked, begin, interrupted))
    before = earlier(rows, 0, lambda: False)
    assert before is not None
    assert before.own_events == 0.0


PLACES = [(), (0,), (5,), (9,), (0, 9), (4, 5), tuple(range(10)), tuple(range(9)), tuple(range(1, 10))]


@pytest.mark.parametrize("wrong", PLACES)
def test_values_that_can_t_be_cast(wrong: tuple[int, ...]) -> None:
    found = evaluated(plan("State.species"), part(["x" if row in wrong else row % 4 for row in range(10)]))
    for row in range(10):
        species, error = found.columns["State.species"][row].as_py(), found.errors[row]
        if row in wrong:
            assert species is None
            assert error == f"input Tap.pot (int), row {FIRST + row}: expected int, found str 'x'"
        else:
            assert (species, error) == (f"old{row % 4}", None)


@pytest.mark.parametrize("wrong", PLACES)
def test_an_extractor_that_raises_for_some_rows(wrong: tuple[int, ...]) -> None:
    # `small` is three times the pot, and may be 5 at most.
    found = evaluated(plan("Faulty.small"), part([7 if row in wrong else 1 for row in range(10)]))
    assert found.columns["Faulty.small"].to_pylist() == [None if row in wrong else 3 for row in range(10)]
    for row in range(10):
        error = found.errors[row]
        assert (error is not None) == (row in wrong)
        assert error is None or f"row {FIRST + row}: expected between" in error


@pytest.mark.parametrize("wrong", PLACES)
def test_times_that_can_t_be_read(wrong: tuple[int, ...]) -> None:
    texts = ["yesterday" if row in wrong else "2023-11-14T22:13:20Z" for row in range(10)]
    found = evaluated(plan("State.species"), part([3] * 10, texts))
    for row in range(10):
        error = found.errors[row]
        assert found.times[row] == (None if row in wrong else T)
        assert found.columns["State.species"][row].as_py() == (None if row in wrong else "old3")
        assert (error is not None) == (row in wrong)
        assert error is None or error.startswith(f"the timestamp of row {FIRST + row}: ")


def test_times_are_texts_or_numbers_of_any_unit() -> None:
    hours = 2 * 3_600_000_000
    times = [T, T // 1000, T // 1_000_000, T * 1000, "2023-11-15T00:13:20", str(T + hours), "2023-11-14T23:13:20+01:00"]
    found = evaluated(plan("State.species"), part([3] * len(times), times))
    assert found.times == [T, T, T, T, T + hours, T + hours, T]
    assert found.columns["State.species"].to_pylist() == ["old3"] * 4 + ["new3"] * 2 + ["old3"]


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf"), 10**30, "", "2024-13-01", b"x"])
def test_what_is_no_time(value: object) -> None:
    found = evaluated(plan("State.species"), part([3, 3], [value, T]))
    assert found.times == [None, T]
    assert found.errors[0] is not None
    assert found.columns["State.species"].to_pylist() == [None, "old3"]


def test_a_null_instant_is_an_error_of_its_row() -> None:
    rows = InputPart({"Tap.pot": [1, 2]}, pa.table({}), times=[None, T])
    found = evaluated(plan("State.species"), rows)
    assert found.errors == [f"the timestamp of row {FIRST} is null", None]


def test_a_null_where_a_feature_is_not_optional() -> None:
    found = evaluated(plan("State.species", "State.count"), part([1, None, 2]))
    assert found.errors == [None, f"input Tap.pot (int), row {FIRST + 1}: expected int, found null", None]


def test_a_text_in_a_value_is_not_taken_for_the_row() -> None:
    compiled = plan("ByText.species", given=("Tap.raw",))
    rows = InputPart({"Tap.raw": ["1", "row 0"]}, pa.table({}), timestamps=[T, T])
    found = evaluated(compiled, rows)
    assert found.errors == [None, f"ByText.pot, row {FIRST + 1}, can't be a key: expected int, found str 'row 0'"]


def test_columns_have_the_types_of_features_even_if_all_is_null() -> None:
    outputs = {"State.species": pa.string(), "State.size": pa.float64(), "State.count": pa.int64(), "State.big": None}
    outputs["State.big"] = pa.bool_()
    for rows in (part(["x"] * 3), part([1, 2, 3]), part([])):
        found = evaluated(plan(*outputs), rows)
        assert {name: column.type for name, column in found.columns.items()} == outputs


def test_each_function_that_fails_says_so() -> None:
    for feature in ("broken", "nameless", "short", "wrong", "nulls", "number", "misnamed", "first", "forbidden"):
        found = evaluated(plan(f"Faulty.{feature}"), part([1, 2, 5]))
        assert found.columns[f"Faulty.{feature}"].null_count == 3
        assert all(error is not None and "Faulty" in error for error in found.errors), feature


def test_the_search_for_failing_rows_is_given_up_when_it_is_interrupted() -> None:
    asked = 0

    def interrupted() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert evaluate(plan("Faulty.broken"), part([1] * 1000), FIRST, interrupted) is None
    assert asked == 4
    assert evaluate(plan("State.species"), part([1] * 10), FIRST, lambda: True) is not None, "no row fails"
