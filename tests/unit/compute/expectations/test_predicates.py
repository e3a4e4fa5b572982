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

Call = tuple[str, dict[str, Any]]


def outcome(call: Call, **columns: Any) -> Outcome:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    (found,) = check_rows(suite_of("D", 0, [call]), frame)
    return found


def counts(call: Call, **columns: Any) -> tuple[int, int, int]:
    found = outcome(call, **columns)
    return found.successes, found.failures, found.skipped


JAN = datetime(2024, 1, 1, tzinfo=UTC)
FEB = datetime(2024, 2, 1, tzinfo=UTC)
SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


def of(check: str, *arguments: Any, **more: Any) -> Call:
    return getattr(lib, f"expect_column_{check}")("c", *arguments, **more)  # type: ignore[no-any-return]


def of_pair(check: str, *arguments: Any, **more: Any) -> Call:
    return getattr(lib, f"expect_column_pair_{check}")("a", "b", *arguments, **more)  # type: ignore[no-any-return]


def case(call: Call, *values_and_counts: Any, row: int | None = None) -> Any:
    """Return the values of each column, and how many rows pass, fail and are skipped."""
    rows = () if row is None else (f"connectors:8.2:{row}", f"featuresets:4.5:{row}")
    return pytest.param(call, *values_and_counts, marks=[pytest.mark.spec(*rows)] if rows else [])


COLUMN_CASES: list[Any] = [
    case(of("values_to_not_be_null"), [1, "", None, float("nan"), pd.NaT], (2, 3, 0), row=1),
    case(of("values_to_be_null"), [None, pd.NA, 0], (2, 1, 0), row=2),
    case(of("values_to_be_of_type", "int"), [1, np.int32(2), True, 1.0, None], (2, 2, 1), row=3),
    case(of("values_to_be_of_type", "LongType"), [1, "1"], (1, 1, 0)),
    case(of("values_to_be_of_type", "float64"), [1.5, np.float32(1), 1], (2, 1, 0)),
    case(of("values_to_be_of_type", "datetime64[ns, UTC]"), [pd.Timestamp(JAN), JAN, date.min], (2, 1, 0)),
    case(of("values_to_be_of_type", "date"), [date.min, JAN], (1, 1, 0)),
    case(of("values_to_be_of_type", "Decimal"), [Decimal(1), 1], (1, 1, 0)),
    case(of("values_to_be_of_type", "List"), [[1], "x", {}], (1, 2, 0)),
    case(of("values_to_be_of_type", "dict"), [{}, []], (1, 1, 0)),
    case(of("values_to_be_of_type", "bytes"), [b"", ""], (1, 1, 0)),
    case(of("values_to_be_in_type_list", ["str", "bool"]), ["a", True, 1], (2, 1, 0), row=4),
    case(of("values_to_be_in_set", [1, "a"]), [1, "a", 2, True, None], (2, 2, 1), row=5),
    case(of("values_to_be_in_set", [JAN]), [JAN, FEB], (1, 1, 0)),
    case(
        of("values_to_be_in_set", ["1 Jan 2024"], parse_strings_as_datetimes=True),
        ["2024-01-01", "2024-02-01"],
        (1, 1, 0),
    ),
    case(of("values_to_be_in_set", [Decimal("1.5")]), [Decimal("1.50"), Decimal(2)], (1, 1, 0)),
    case(of("values_to_not_be_in_set", [1, "a"]), [1, 2, None], (1, 1, 1), row=6),
    case(of("values_to_be_between", 1, 3), [0, 1, 2.5, 3, 4, None], (3, 2, 1), row=7),
    case(of("values_to_be_between", 1, 3, strict_min=True, strict_max=True), [1, 2, 3], (1, 2, 0)),
    case(of("values_to_be_between", min_value=1), [0, 10**30], (1, 1, 0)),
    case(of("values_to_be_between", max_value=1), [0, 2, "x"], (1, 2, 0)),
    case(of("values_to_be_between", JAN, FEB, strict_max=True), [JAN, FEB], (1, 1, 0)),
    case(
        of("values_to_be_between", "2024-01-15", None, parse_strings_as_datetimes=True),
        ["2024-02-01", "2024-01-01", "no time"],
        (1, 2, 0),
    ),
    case(of("values_to_be_between", date(2024, 1, 1)), [date(2024, 1, 1), date(2023, 1, 1)], (1, 1, 0)),
    case(of("value_lengths_to_be_between", 1, 2), ["", "a", "ab", "abc", None, 5], (2, 3, 1), row=8),
    case(of("value_lengths_to_equal", 2), ["ab", "é", "éa"], (2, 1, 0), row=9),
    case(of("values_to_match_regex", "b+"), ["abbc", "b", "ac", None, 3], (2, 2, 1), row=10),
    case(of("values_to_not_match_regex", "b"), ["abc", "ac", None, 3], (1, 2, 1), row=11),
    case(of("values_to_match_regex_list", ["a", "b"]), ["a", "ab", "c"], (2, 1, 0), row=12),
    case(of("values_to_match_regex_list", ["a", "b"], "all"), ["a", "ab", "c"], (1, 2, 0)),
    case(of("values_to_not_match_regex_list", ["a", "b"]), ["a", "ab", "c"], (1, 2, 0), row=13),
    case(of("values_to_match_strftime_format", "%Y-%m"), ["2024-01", "2024", None], (1, 1, 1), row=14),
    case(of("values_to_be_dateutil_parseable"), ["Jan 5, 2024", "nonsense", 3], (1, 2, 0), row=15),
    case(of("values_to_be_json_parseable"), ["null", '{"a": 1}', "{a}", None], (2, 1, 1), row=16),
    case(of("values_to_match_json_schema", SCHEMA), ['{"a": 1}', '{"a": "x"}', "[]", "{", None], (1, 3, 1), row=17),
]


@pytest.mark.parametrize(("call", "values", "expected"), COLUMN_CASES)
def test_checks_of_a_column(call: Call, values: list[Any], expected: tuple[int, int, int]) -> None:
    assert counts(call, c=values) == expected


ROW_CASES: list[Any] = [
    case(of_pair("values_to_be_equal"), [1, 1, None, None], [1, 2, None, 1], (1, 2, 1), row=18),
    case(
        of_pair("values_to_be_equal", ignore_row_if="either_value_is_missing"), [1, None, None], [1, None, 1], (1, 0, 2)
    ),
    case(of_pair("values_to_be_equal", ignore_row_if="neither"), [1, None], [1, None], (1, 1, 0)),
    case(of_pair("values_A_to_be_greater_than_B"), [2, 1, 1, None], [1, 1, 2, 1], (1, 3, 0), row=19),
    case(of_pair("values_A_to_be_greater_than_B", or_equal=True), [2, 1, 0], [1, 1, 1], (2, 1, 0)),
    case(
        of_pair("values_A_to_be_greater_than_B", parse_strings_as_datetimes=True),
        ["2024-02-01"],
        ["1 Jan 2024"],
        (1, 0, 0),
    ),
    case(of_pair("values_to_be_in_set", {(1, "x"), (2, "y")}), [1, 2, None], ["x", "x", None], (1, 1, 1), row=20),
    case(of_pair("values_to_be_in_set", [(1, None)], ignore_row_if="neither"), [1, 1], [None, 2], (1, 1, 0)),
    case(lib.expect_multicolumn_sum_to_equal(["a", "b"], 3), [1, 1, None, None], [2, 1, None, 3], (1, 2, 1), row=21),
    case(lib.expect_multicolumn_sum_to_equal(["a", "b"], 0.3), [Decimal("0.1")], [Decimal("0.2")], (1, 0, 0)),
]


@pytest.mark.parametrize(("call", "first", "second", "expected"), ROW_CASES)
def test_checks_of_several_columns(
    call: Call, first: list[Any], second: list[Any], expected: tuple[int, int, int]
) -> None:
    assert counts(call, a=first, b=second) == expected


def test_every_check_is_tested_above() -> None:
    cases = [*COLUMN_CASES, *ROW_CASES]
    assert {case.values[0][0] for case in cases} == EXPECTATION_NAMES  # noqa: PD011 (no frame)


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
