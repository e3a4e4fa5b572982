"""The law of checks for whole columns: they count what checks of single rows count."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway import lib
from caraway.compute.expectations.suite import CompiledSuite
from caraway.dtypes import types as t
from caraway.dtypes.values import cast
from caraway.lib.expectations import suite_of
from tests.unit.compute.expectations.row_by_row import check_rows

BIG = 2**53
INTS = st.sampled_from([0, 1, -1, 2, 3, BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63)]) | st.integers(-3, 3)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 2.5, float(BIG), float("inf"), float("-inf"), 1e300]) | st.floats(-3, 3)
TEXTS = st.sampled_from(
    ["", "a", "ab", "b", "é", "\U0001f41d", "a\n", "2024-01-01", "1 Jan 2024", "12", "{}", '{"a": 1}']
)
TIMES = st.sampled_from(
    [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in (-1, 0, 1, 86_400_000_000)]
)
DAYS = st.sampled_from([date(2023, 12, 31), date(2024, 1, 1), date(2024, 1, 2)])
TYPES: dict[str, t.DataType] = {
    "i": t.optional(t.INT),
    "j": t.INT,
    "f": t.optional(t.FLOAT),
    "g": t.FLOAT,
    "s": t.optional(t.STRING),
    "u": t.STRING,
    "at": t.optional(t.DATETIME),
    "end": t.DATETIME,
    "day": t.optional(t.DATE),
    "eve": t.DATE,
    "dec": t.optional(t.DecimalType(2)),
    "yes": t.optional(t.BOOL),
    "tags": t.ListType(t.STRING),
    "counts": t.optional(t.MapType(t.INT)),
}
NAN = st.just(float("nan"))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.none() | INTS,
    "j": INTS,
    "f": st.none() | FLOATS | NAN,
    "g": FLOATS | NAN,
    "s": st.none() | TEXTS,
    "u": TEXTS,
    "at": st.none() | TIMES,
    "end": TIMES,
    "day": st.none() | DAYS,
    "eve": DAYS,
    "dec": st.none() | st.sampled_from([Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")]),
    "yes": st.none() | st.booleans(),
    "tags": st.lists(st.sampled_from(["a", "b"]), max_size=2),
    "counts": st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 2), max_size=2),
}
COLUMN = st.sampled_from(list(TYPES))
ARGUMENT = (
    INTS | FLOATS | NAN | TEXTS | TIMES | DAYS | st.booleans() | st.sampled_from([10**30, -(10**30), Decimal("1.5")])
)
FLAG = st.sampled_from([None, False, True])
PATTERN = st.sampled_from(["", "a", "^a$", "[ab]+", r"\d", "(a+)+$", r"\bé", "a|b"])
CONDITION = st.sampled_from(
    [None, None, "j > 0", 'u == "a" or i.isnull()', "i in [1, 2]", "not (g < 1.5)", "0 <= j <= 2"]
)
TYPE = st.sampled_from(["int", "float64", "str", "LongType", "bool", "datetime", "date", "Decimal", "list", "dict"])


IGNORING = st.sampled_from(["both_values_are_missing", "either_value_is_missing", "neither"])
# Most pairs are of the same type, since others are seldom equal.
ALIKE = [("i", "j"), ("f", "g"), ("s", "u"), ("at", "end"), ("day", "eve")]
PAIR = st.sampled_from(ALIKE) | st.tuples(COLUMN, COLUMN)
LENGTH = st.integers(-1, 3) | st.sampled_from([1.0, 1.5, 10**30])
SCHEMA = st.sampled_from([{"type": "object"}, {"required": ["a"]}, {"type": "nonsense"}])
Call = tuple[str, dict[str, Any]]


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    condition = draw(CONDITION)
    return {} if condition is None else {"row_condition": condition, "condition_parser": "pandas"}


@st.composite
def of_column(draw: st.DrawFn, name: str, *arguments: st.SearchStrategy[Any]) -> Call:
    return getattr(lib, name)(draw(COLUMN), *map(draw, arguments), **draw(conditions()))  # type: ignore[no-any-return]


@st.composite
def of_pair(draw: st.DrawFn, /, name: str, *arguments: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> Call:
    keywords = {key: draw(value) for key, value in more.items()}
    found: Call = getattr(lib, name)(*draw(PAIR), *map(draw, arguments), ignore_row_if=draw(IGNORING), **keywords)
    return found


@st.composite
def in_set(draw: st.DrawFn, name: str) -> Call:
    column = draw(COLUMN)
    own = VALUES[column].filter(lambda value: not isinstance(value, dict))
    options = draw(st.lists(ARGUMENT | own, max_size=5))
    found: Call = getattr(lib, name)(column, options, parse_strings_as_datetimes=draw(FLAG), **draw(conditions()))
    return found


@st.composite
def between(draw: st.DrawFn) -> Call:
    column = draw(COLUMN)
    return lib.expect_column_values_to_be_between(
        column,
        draw(ARGUMENT | VALUES[column].filter(lambda value: value is not None)),
        draw(st.none() | ARGUMENT | VALUES[column]),
        strict_min=draw(st.booleans()),
        strict_max=draw(st.booleans()),
        parse_strings_as_datetimes=draw(st.booleans()),
        **draw(conditions()),
    )


@st.composite
def sums(draw: st.DrawFn) -> Call:
    columns = [*draw(PAIR), *draw(st.lists(st.sampled_from(["i", "j", "f", "g", "dec"]), max_size=1))]
    return lib.expect_multicolumn_sum_to_equal(columns, draw(INTS | FLOATS))


PATTERNS = st.lists(PATTERN, max_size=2)
SIDES = st.tuples(ARGUMENT | st.none(), ARGUMENT | st.none())
CALLS = [
    of_column("expect_column_values_to_not_be_null"),
    of_column("expect_column_values_to_be_null"),
    of_column("expect_column_values_to_be_of_type", TYPE),
    of_column("expect_column_values_to_be_in_type_list", st.lists(TYPE, max_size=3)),
    in_set("expect_column_values_to_be_in_set"),
    in_set("expect_column_values_to_not_be_in_set"),
    between(),
    of_column("expect_column_value_lengths_to_be_between", LENGTH | st.just("1"), st.none() | LENGTH),
    of_column("expect_column_value_lengths_to_equal", LENGTH),
    of_column("expect_column_values_to_match_regex", PATTERN),
    of_column("expect_column_values_to_not_match_regex", PATTERN),
    of_column("expect_column_values_to_match_regex_list", PATTERNS, st.sampled_from(["any", "all"])),
    of_column("expect_column_values_to_not_match_regex_list", PATTERNS),
    of_column("expect_column_values_to_match_strftime_format", st.sampled_from(["%Y-%m-%d", "%d", "%d %b %Y"])),
    of_column("expect_column_values_to_be_dateutil_parseable"),
    of_column("expect_column_values_to_be_json_parseable"),
    of_column("expect_column_values_to_match_json_schema", SCHEMA),
    of_pair("expect_column_pair_values_to_be_equal"),
    of_pair(
        "expect_column_pair_values_A_to_be_greater_than_B", or_equal=FLAG, parse_strings_as_datetimes=st.booleans()
    ),
    of_pair("expect_column_pair_values_to_be_in_set", st.lists(SIDES, max_size=3)),
    sums(),
]


def calls() -> st.SearchStrategy[Call]:
    return st.one_of(CALLS)


ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=8)


def in_stored_form(value: Any, dtype: t.DataType) -> Any:
    # A pipeline may compute NaN in a column that isn't optional, which a cast refuses.
    return value if value is None or isinstance(value, float) else cast(dtype)(value)


def counted(rows: list[dict[str, Any]], listed: list[Call]) -> list[tuple[int, int]]:
    compiled = CompiledSuite(suite_of("D", 0, listed), TYPES)
    stored = {name: [in_stored_form(row[name], TYPES[name]) for row in rows] for name in TYPES}
    found = compiled.check({name: stored[name] for name in compiled.columns}, len(rows))
    assert [len(one.evaluated) for one in found] == [len(rows)] * len(listed)
    assert not any((one.failed & ~one.evaluated).any() for one in found)
    return [(int(one.evaluated.sum()), int(one.failed.sum())) for one in found]


@given(rows=ROWS, listed=st.lists(calls(), min_size=1, max_size=3))
def test_a_check_finds_the_same_whatever_it_has_seen(rows: list[dict[str, Any]], listed: list[Call]) -> None:
    compiled = CompiledSuite(suite_of("D", 0, listed), TYPES)
    columns = {name: [in_stored_form(row[name], TYPES[name]) for row in rows] for name in TYPES}
    found = [[one.failed.tolist() for one in compiled.check(columns, len(rows))] for _ in range(3)]
    assert found == [found[0]] * 3


def expected(rows: list[dict[str, Any]], listed: list[Call]) -> list[tuple[int, int]]:
    columns = {name: pd.Series([row[name] for row in rows], dtype=object) for name in TYPES}
    # Conditions are pandas's, which needs columns of types that have nulls.
    columns |= {
        "i": columns["i"].astype("Int64"),
        "j": columns["j"].astype("Int64"),
        "g": columns["g"].astype("Float64"),
    }
    outcomes = check_rows(suite_of("D", 0, listed), pd.DataFrame(columns))
    return [(one.successes + one.failures, one.failures) for one in outcomes]


@pytest.mark.spec("connectors:11:19")
@given(rows=ROWS, listed=st.lists(calls(), min_size=1, max_size=3))
@example(rows=[], listed=[lib.expect_column_values_to_be_null("i")])
def test_checks_of_columns_count_what_checks_of_rows_do(rows: list[dict[str, Any]], listed: list[Call]) -> None:
    assert counted(rows, listed) == expected(rows, listed)


ROW: dict[str, Any] = {
    **dict.fromkeys(("i", "f", "s", "at", "day", "dec", "yes", "counts")),
    "j": 1,
    "g": 1.5,
    "u": "a",
    "end": datetime(2024, 1, 1, tzinfo=UTC),
    "eve": date(2024, 1, 1),
    "tags": [],
}


def test_rows_whose_condition_is_null_do_not_count() -> None:
    call = lib.expect_column_values_to_be_between("j", 5, row_condition="i > 0", condition_parser="pandas")
    assert counted([ROW, {**ROW, "i": 1}, {**ROW, "i": 0}], [call]) == [(1, 1)]


def test_an_instant_that_python_has_not_fails() -> None:
    compiled = CompiledSuite(suite_of("D", 0, [lib.expect_column_values_to_match_regex("end", "a")]), TYPES)
    (found,) = compiled.check({"end": [2**62]}, 1)
    assert (found.evaluated.tolist(), found.failed.tolist()) == ([True], [True])
