"""Tests of each check against rows written out by hand: those that pass, those that fail, those that are left out."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway import lib
from caraway.compute.expectations.predicates import expectation_names
from caraway.graph.expectations import EXPECTATION_NAMES
from caraway.lib.expectations import suite_of
from tests.unit.compute.expectations.row_by_row import Outcome, check_rows


def outcome(call: tuple[str, dict[str, Any]], **columns: Any) -> Outcome:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    (found,) = check_rows(suite_of("D", 0, [call]), frame)
    return found


def counts(call: tuple[str, dict[str, Any]], **columns: Any) -> tuple[int, int, int]:
    found = outcome(call, **columns)
    return found.successes, found.failures, found.skipped


JAN = datetime(2024, 1, 1, tzinfo=UTC)
FEB = datetime(2024, 2, 1, tzinfo=UTC)
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


def row(number: int) -> Any:
    return pytest.mark.spec(f"connectors:8.2:{number}", f"featuresets:4.5:{number}")


COLUMN_CASES: list[Any] = [
    pytest.param(
        lib.expect_column_values_to_not_be_null("c"), [1, "", None, float("nan"), pd.NaT], (2, 3, 0), marks=row(1)
    ),
    pytest.param(lib.expect_column_values_to_be_null("c"), [None, pd.NA, 0], (2, 1, 0), marks=row(2)),
    pytest.param(
        lib.expect_column_values_to_be_of_type("c", "int"), [1, np.int32(2), True, 1.0, None], (2, 2, 1), marks=row(3)
    ),
    (lib.expect_column_values_to_be_of_type("c", "LongType"), [1, "1"], (1, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "float64"), [1.5, np.float32(1), 1], (2, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "datetime64[ns, UTC]"), [pd.Timestamp(JAN), JAN, date.min], (2, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "date"), [date.min, JAN], (1, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "Decimal"), [Decimal(1), 1], (1, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "List"), [[1], "x", {}], (1, 2, 0)),
    (lib.expect_column_values_to_be_of_type("c", "dict"), [{}, []], (1, 1, 0)),
    (lib.expect_column_values_to_be_of_type("c", "bytes"), [b"", ""], (1, 1, 0)),
    pytest.param(
        lib.expect_column_values_to_be_in_type_list("c", ["str", "bool"]), ["a", True, 1], (2, 1, 0), marks=row(4)
    ),
    pytest.param(
        lib.expect_column_values_to_be_in_set("c", [1, "a"]), [1, "a", 2, True, None], (2, 2, 1), marks=row(5)
    ),
    (lib.expect_column_values_to_be_in_set("c", [JAN]), [JAN, FEB], (1, 1, 0)),
    (
        lib.expect_column_values_to_be_in_set("c", ["1 Jan 2024"], parse_strings_as_datetimes=True),
        ["2024-01-01", "2024-02-01"],
        (1, 1, 0),
    ),
    (lib.expect_column_values_to_be_in_set("c", [Decimal("1.5")]), [Decimal("1.50"), Decimal(2)], (1, 1, 0)),
    pytest.param(lib.expect_column_values_to_not_be_in_set("c", [1, "a"]), [1, 2, None], (1, 1, 1), marks=row(6)),
    pytest.param(lib.expect_column_values_to_be_between("c", 1, 3), [0, 1, 2.5, 3, 4, None], (3, 2, 1), marks=row(7)),
    (lib.expect_column_values_to_be_between("c", 1, 3, strict_min=True, strict_max=True), [1, 2, 3], (1, 2, 0)),
    (lib.expect_column_values_to_be_between("c", min_value=1), [0, 10**30], (1, 1, 0)),
    (lib.expect_column_values_to_be_between("c", max_value=1), [0, 2, "x"], (1, 2, 0)),
    (lib.expect_column_values_to_be_between("c", JAN, FEB, strict_max=True), [JAN, FEB], (1, 1, 0)),
    (
        lib.expect_column_values_to_be_between("c", "2024-01-15", None, parse_strings_as_datetimes=True),
        ["2024-02-01", "2024-01-01", "no time"],
        (1, 2, 0),
    ),
    (lib.expect_column_values_to_be_between("c", date(2024, 1, 1)), [date(2024, 1, 1), date(2023, 1, 1)], (1, 1, 0)),
    pytest.param(
        lib.expect_column_value_lengths_to_be_between("c", 1, 2),
        ["", "a", "ab", "abc", None, 5],
        (2, 3, 1),
        marks=row(8),
    ),
    pytest.param(lib.expect_column_value_lengths_to_equal("c", 2), ["ab", "é", "éa"], (2, 1, 0), marks=row(9)),
    pytest.param(
        lib.expect_column_values_to_match_regex("c", "b+"), ["abbc", "b", "ac", None, 3], (2, 2, 1), marks=row(10)
    ),
    pytest.param(
        lib.expect_column_values_to_not_match_regex("c", "b"), ["abc", "ac", None, 3], (1, 2, 1), marks=row(11)
    ),
    pytest.param(
        lib.expect_column_values_to_match_regex_list("c", ["a", "b"]), ["a", "ab", "c"], (2, 1, 0), marks=row(12)
    ),
    (lib.expect_column_values_to_match_regex_list("c", ["a", "b"], "all"), ["a", "ab", "c"], (1, 2, 0)),
    pytest.param(
        lib.expect_column_values_to_not_match_regex_list("c", ["a", "b"]), ["a", "ab", "c"], (1, 2, 0), marks=row(13)
    ),
    pytest.param(
        lib.expect_column_values_to_match_strftime_format("c", "%Y-%m"),
        ["2024-01", "2024", None],
        (1, 1, 1),
        marks=row(14),
    ),
    pytest.param(
        lib.expect_column_values_to_be_dateutil_parseable("c"), ["Jan 5, 2024", "nonsense", 3], (1, 2, 0), marks=row(15)
    ),
    pytest.param(
        lib.expect_column_values_to_be_json_parseable("c"), ["null", '{"a": 1}', "{a}", None], (2, 1, 1), marks=row(16)
    ),
    pytest.param(
        lib.expect_column_values_to_match_json_schema("c", SCHEMA),
        ['{"a": 1}', '{"a": "x"}', "[]", "{", None],
        (1, 3, 1),
        marks=row(17),
    ),
]


@pytest.mark.parametrize(("call", "values", "expected"), COLUMN_CASES)
def test_checks_of_a_column(
    call: tuple[str, dict[str, Any]], values: list[Any], expected: tuple[int, int, int]
) -> None:
    assert counts(call, c=values) == expected


ROW_CASES: list[Any] = [
    pytest.param(
        lib.expect_column_pair_values_to_be_equal("a", "b"),
        [1, 1, None, None],
        [1, 2, None, 1],
        (1, 2, 1),
        marks=row(18),
    ),
    (
        lib.expect_column_pair_values_to_be_equal("a", "b", ignore_row_if="either_value_is_missing"),
        [1, None, None],
        [1, None, 1],
        (1, 0, 2),
    ),
    (lib.expect_column_pair_values_to_be_equal("a", "b", ignore_row_if="neither"), [1, None], [1, None], (1, 1, 0)),
    pytest.param(
        lib.expect_column_pair_values_A_to_be_greater_than_B("a", "b"),
        [2, 1, 1, None],
        [1, 1, 2, 1],
        (1, 3, 0),
        marks=row(19),
    ),
    (lib.expect_column_pair_values_A_to_be_greater_than_B("a", "b", or_equal=True), [2, 1, 0], [1, 1, 1], (2, 1, 0)),
    (
        lib.expect_column_pair_values_A_to_be_greater_than_B("a", "b", parse_strings_as_datetimes=True),
        ["2024-02-01"],
        ["1 Jan 2024"],
        (1, 0, 0),
    ),
    pytest.param(
        lib.expect_column_pair_values_to_be_in_set("a", "b", {(1, "x"), (2, "y")}),
        [1, 2, None],
        ["x", "x", None],
        (1, 1, 1),
        marks=row(20),
    ),
    (
        lib.expect_column_pair_values_to_be_in_set("a", "b", [(1, None)], ignore_row_if="neither"),
        [1, 1],
        [None, 2],
        (1, 1, 0),
    ),
    pytest.param(
        lib.expect_multicolumn_sum_to_equal(["a", "b"], 3),
        [1, 1, None, None],
        [2, 1, None, 3],
        (1, 2, 1),
        marks=row(21),
    ),
    (lib.expect_multicolumn_sum_to_equal(["a", "b"], 0.3), [Decimal("0.1")], [Decimal("0.2")], (1, 0, 0)),
]


@pytest.mark.parametrize(("call", "first", "second", "expected"), ROW_CASES)
def test_checks_of_several_columns(
    call: tuple[str, dict[str, Any]], first: list[Any], second: list[Any], expected: tuple[int, int, int]
) -> None:
    assert counts(call, a=first, b=second) == expected


def test_every_check_is_tested_above() -> None:
    cases = [getattr(case, "values", case) for case in (*COLUMN_CASES, *ROW_CASES)]
    assert {case[0][0] for case in cases} == EXPECTATION_NAMES


def test_mostly_says_how_many_rows_must_pass() -> None:
    values = [1] * 9 + [None]
    assert outcome(lib.expect_column_values_to_not_be_null("c", mostly=0.9), c=values).passed
    assert not outcome(lib.expect_column_values_to_not_be_null("c", mostly=0.95), c=values).passed
    assert not outcome(lib.expect_column_values_to_not_be_null("c"), c=values).passed
    # A check without rows to look at is no reason for an alert.
    assert outcome(lib.expect_column_values_to_be_in_set("c", [1]), c=[None]).passed


def test_a_row_condition_says_which_rows_count() -> None:
    call = lib.expect_column_values_to_be_in_set("c", [1], row_condition='kind == "x"', condition_parser="pandas")
    assert counts(call, c=[1, 2, 2], kind=["x", "x", "y"]) == (1, 1, 1)


def test_checks_are_named_after_their_columns_and_counted() -> None:
    twice = lib.expect_column_values_to_be_null("c")
    pair = lib.expect_column_pair_values_to_be_equal("a", "b")
    assert expectation_names(suite_of("D", 0, [twice, pair, twice])) == (
        "expect_column_values_to_be_null:c",
        "expect_column_pair_values_to_be_equal:a,b",
        "expect_column_values_to_be_null:c:2",
    )


@given(st.lists(st.none() | st.integers(-3, 3) | st.text("ab", max_size=2) | st.booleans() | st.floats(), max_size=8))
def test_membership_is_the_opposite_of_absence(values: list[Any]) -> None:
    member = outcome(lib.expect_column_values_to_be_in_set("c", [1, "a", True]), c=values)
    absent = outcome(lib.expect_column_values_to_not_be_in_set("c", [1, "a", True]), c=values)
    assert (member.successes, member.failures) == (absent.failures, absent.successes)
    assert member.successes + member.failures + member.skipped == len(values)


@given(
    values=st.lists(st.none() | st.integers(-9, 9) | st.floats(-9, 9), max_size=8),
    low=st.integers(-9, 9),
    strict=st.booleans(),
)
def test_bounds_agree_with_pandas(values: list[Any], low: int, *, strict: bool) -> None:
    call = lib.expect_column_values_to_be_between("c", low, strict_min=strict)
    numbers = pd.Series(values, dtype=float).dropna()
    found = outcome(call, c=values)
    assert found.successes == int((numbers > low).sum() if strict else (numbers >= low).sum())
    assert found.skipped == len(values) - len(numbers)
