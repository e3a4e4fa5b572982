"""Tests that the quick cast of a column has the results of casting each value."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.compute.rows.column_casts import ColumnCast
from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, BetweenType, DataType, optional
from caraway.dtypes.values import Convert, cast
from caraway.errors import InvalidInputError

TYPES: list[DataType] = [
    INT,
    FLOAT,
    BOOL,
    STRING,
    DATETIME,
    BetweenType(INT, -5, 5),
    BetweenType(FLOAT, -0.5, 1e9, strict_min=True),
    optional(INT),
    optional(FLOAT),
    optional(BetweenType(INT, 0, 100, strict_max=True)),
]
INTEGERS = st.one_of(st.integers(-10, 10), st.integers(-(2**63), 2**64 - 1), st.integers(10**9, 10**16))
VALUES = st.one_of(INTEGERS, st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), st.text())
ZONES = st.none() | st.timezones() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
MOMENTS = st.datetimes(timezones=ZONES)
INSTANTS = st.one_of(
    MOMENTS.map(datetime.isoformat),
    MOMENTS.map(lambda at: at.isoformat(sep=" ", timespec="milliseconds")),
    MOMENTS.map(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ")),
    MOMENTS.map(lambda at: at.strftime("%m/%d/%Y %H:%M")),
    MOMENTS.map(format_datetime),
    st.dates().map(str),
    st.sampled_from(
        ["20240101", " 2024-01-01", "2024-01-01 ", "2024-W01-1", "2024-1-1", "1700000000", "-1", "2024", ""]
    ),
    st.sampled_from(["2024-01-01T24:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01", "12-5-2024"]),
)
COLUMNS = st.one_of(
    st.lists(INSTANTS),
    st.lists(MOMENTS.map(datetime.isoformat), min_size=1),
    st.lists(INTEGERS),
    st.lists(st.floats(allow_nan=False, allow_infinity=False)),
    st.lists(st.one_of(st.integers(-5, 5), st.floats(-5, 5))),
    st.lists(st.one_of(INTEGERS, st.none())),
    st.lists(VALUES),
)


@given(st.sampled_from(TYPES), COLUMNS)
@example(DATETIME, [9_223_372_036, 9_223_372_037])
@example(DATETIME, [9_223_372_036_000, 9_223_372_036_001])
@example(BetweenType(FLOAT, -0.5, 1e9, strict_min=True), [-0.5])
def test_columns_are_cast_as_their_values_are(dtype: DataType, values: list[Any]) -> None:
    done = ColumnCast(dtype)(values)
    convert = cast(dtype)
    assert len(done.values) == len(values)
    for position, value in enumerate(values):
        expected = attempt(convert, value)
        if isinstance(expected, InvalidInputError):
            # The texts of the error for null in a restricted type differ.
            assert value is None or done.errors[position] == str(expected)
            assert position in done.errors
        else:
            assert position not in done.errors
            assert (done.values[position], type(done.values[position])) == (expected, type(expected))


def attempt(convert: Convert, value: object) -> object:
    try:
        return convert(value)
    except InvalidInputError as error:
        return error


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("number", [Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+999999999")], ids=str)
def test_a_decimal_that_cannot_be_cast_is_an_error_of_its_row_only(dtype: DataType, number: Decimal) -> None:
    """A signalling NaN can't even be compared; a source of Avro or Postgres may have one."""
    done = ColumnCast(dtype)([number, 1])
    assert set(done.errors) <= {0, 1}
    if number.is_snan() and dtype != STRING:
        assert "sNaN" in done.errors[0]
    assert ColumnCast(dtype)([1]).values[0] == done.values[1]


@pytest.mark.parametrize("dtype", [FLOAT, optional(FLOAT), BetweenType(FLOAT, 0.0, 9.0)], ids=str)
@pytest.mark.parametrize("number", [10**400, -(10**5000)], ids=["positive", "negative"])
def test_an_int_that_is_too_large_for_a_float_is_an_error_of_its_row_only(dtype: DataType, number: int) -> None:
    """A function of a source, or the process of a connector, may give an int of any size."""
    for others in ([], [1], [1, 2.5], [2.5], [1, None]):
        done = ColumnCast(dtype)([number, *others])
        alone = ColumnCast(dtype)(list(others))
        assert "a number of" in done.errors[0]
        assert done.values == [None, *alone.values]
        assert set(done.errors) == {0, *(row + 1 for row in alone.errors)}
