"""Checks of expectations for whole columns, by polars.

Only checks whose result is certain to be that of `predicates` are here: of columns and arguments of one plain type. For
all others there is no expression, and `suite` looks at the values one by one. Regular expressions are those of pyarrow,
which has the same library for them as `predicates`; polars knows another dialect.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pyarrow.compute as pc
from dateutil.parser import parse as parse_time

from caraway.dtypes.instants import instant_us
from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    StringType,
    StructType,
    base_type,
)
from caraway.dtypes.values import INT_MAX, INT_MIN
from caraway.graph.expectations import type_named
from caraway.process.patterns import searcher

Arguments = Mapping[str, Any]
Types = Mapping[str, DataType]
# Up to this magnitude each int is exactly a float. A greater int would be rounded as the bound of a column of floats,
# so Python compares the values one by one.
EXACT = 2**53
YES, NO = pl.lit(value=True), pl.lit(value=False)
# The types whose values polars orders as Python does, if both sides have the same one. Pairs of other types are
# compared by Python.
_ORDERED = (IntType, FloatType, StringType, DatetimeType, DateType)
_KINDS: Mapping[type, str] = {
    BoolType: "bool",
    IntType: "int",
    FloatType: "float",
    StringType: "str",
    BytesType: "bytes",
    DatetimeType: "datetime",
    DateType: "date",
    DecimalType: "Decimal",
    ListType: "list",
    EmbeddingType: "list",
    MapType: "dict",
}


def null_of(name: str, dtype: DataType) -> pl.Expr:
    """Return the expression that is true where a column is null; NaN counts as null."""
    column = pl.col(name)
    if isinstance(base_type(dtype), FloatType):
        return (column.is_null() | column.is_nan()).fill_null(value=True)
    return column.is_null()


def passes_by_column(name: str, arguments: Arguments, types: Types) -> pl.Expr | None:
    """Return the expression that is true of rows that pass a check, among those that it doesn't leave out.

    Returns None if values have to be looked at one by one.

    Args:
        name: The name of the check.
        arguments: Its arguments.
        types: The types of the dataset's columns.
    """
    make = _EXPRESSIONS.get(name)
    return None if make is None else make(arguments, types)


def _not_null(arguments: Arguments, types: Types) -> pl.Expr:
    return ~_null(arguments, types)


def _null(arguments: Arguments, types: Types) -> pl.Expr:
    return null_of(arguments["column"], types[arguments["column"]])


def _of_type(arguments: Arguments, types: Types) -> pl.Expr | None:
    names = arguments["type_list"] if "type_list" in arguments else [arguments["type_"]]
    dtype = base_type(types[arguments["column"]])
    if isinstance(dtype, StructType):
        return None
    return YES if _KINDS[type(dtype)] in {type_named(str(name)) for name in names} else NO


def _between(arguments: Arguments, types: Types) -> pl.Expr | None:
    column, dtype = pl.col(arguments["column"]), base_type(types[arguments["column"]])
    parses = bool(arguments.get("parse_strings_as_datetimes"))
    match dtype:
        case StringType() if not parses:
            read: Callable[[Any], Any] = lambda bound: bound if isinstance(bound, str) else None  # noqa: E731
        case DatetimeType():
            column, read = column.to_physical(), _instant
        case DateType() if not parses:
            column, read = column.to_physical(), _day
        case IntType() | FloatType():
            return _within(column, arguments, is_int=isinstance(dtype, IntType))
        case _:
            return None
    found = YES
    for bound, strict, is_low in _bounds(arguments):
        value = read(bound)
        if value is None:
            return None
        found &= _on_side(column, pl.lit(value), strict=strict, is_low=is_low)
    return found


def _lengths_between(arguments: Arguments, types: Types) -> pl.Expr | None:
    if not isinstance(base_type(types[arguments["column"]]), StringType):
        return None
    return _within(pl.col(arguments["column"]).str.len_chars().cast(pl.Int64), arguments, is_int=True)


def _length_equals(arguments: Arguments, types: Types) -> pl.Expr | None:
    wanted = arguments["value"]
    if not isinstance(base_type(types[arguments["column"]]), StringType) or type(wanted) is not int:
        return None
    return pl.col(arguments["column"]).str.len_chars().cast(pl.Int64) == min(max(wanted, -1), INT_MAX)


# Up to this many texts are matched one by one. A call of pyarrow first compiles the pattern, which takes as long as
# matching some ten texts.
FEW_TEXTS = 10


def _found(column: pl.Expr, pattern: str) -> pl.Expr:
    """Return the expression that is true of texts in which a pattern is found."""
    found = searcher(pattern)

    def look(texts: pl.Series) -> pl.Series:
        if len(texts) <= FEW_TEXTS:
            return pl.Series([None if text is None else found(text) for text in texts], dtype=pl.Boolean)
        arrow = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        return pl.Series(pc.match_substring_regex(arrow, pattern))

    return column.map_batches(look, return_dtype=pl.Boolean)


def _matches(*, wanted: bool) -> Callable[[Arguments, Types], pl.Expr | None]:
    """Return what makes the expression that is true of texts in which patterns are found, or aren't."""

    def make(arguments: Arguments, types: Types) -> pl.Expr | None:
        if not isinstance(base_type(types[arguments["column"]]), StringType):
            return None
        patterns = arguments["regex_list"] if "regex_list" in arguments else [arguments["regex"]]
        found = [_found(pl.col(arguments["column"]), pattern) for pattern in patterns]
        if wanted and arguments.get("match_on") == "all":
            return pl.all_horizontal(YES, *found)
        return pl.any_horizontal(NO, *found) if wanted else ~pl.any_horizontal(NO, *found)

    return make


def _in_set(arguments: Arguments, types: Types) -> pl.Expr | None:
    if arguments.get("parse_strings_as_datetimes"):
        return None
    column, options = pl.col(arguments["column"]), arguments["value_set"]
    numbers = [option for option in options if type(option) in (int, float) and math.isfinite(option)]
    match base_type(types[arguments["column"]]):
        case StringType():
            return _member(column, [option for option in options if isinstance(option, str)], pl.String)
        case IntType():
            whole = [int(number) for number in numbers if number == int(number)]
            return _member(column, [number for number in whole if INT_MIN <= number <= INT_MAX], pl.Int64)
        case FloatType():
            infinite = [option for option in options if type(option) is float and math.isinf(option)]
            exact = [float(number) for number in numbers if abs(number) < 2**1000 and float(number) == number]
            # The options get 0.0 in place of -0.0, which is equal but has other bits. The column needs no such change,
            # since the `is_in` of polars treats -0.0 and 0.0 as equal.
            return _member(column, [number + 0.0 for number in (*exact, *infinite)], pl.Float64)
        case _:
            return None


def _not_in_set(arguments: Arguments, types: Types) -> pl.Expr | None:
    member = _in_set(arguments, types)
    return None if member is None else ~member


def _pair_equal(arguments: Arguments, types: Types) -> pl.Expr | None:
    return _pair(arguments, types, (*_ORDERED, BoolType), lambda first, second: first == second)


def _pair_greater(arguments: Arguments, types: Types) -> pl.Expr | None:
    first, _ = _names_of_pair(arguments)
    if arguments.get("parse_strings_as_datetimes") and isinstance(base_type(types[first]), StringType):
        return None
    or_equal = bool(arguments.get("or_equal"))
    return _pair(arguments, types, _ORDERED, lambda one, other: one >= other if or_equal else one > other)


def _pair(
    arguments: Arguments, types: Types, allowed: tuple[type, ...], compare: Callable[[pl.Expr, pl.Expr], pl.Expr]
) -> pl.Expr | None:
    first, second = _names_of_pair(arguments)
    one, other = base_type(types[first]), base_type(types[second])
    if type(one) is not type(other) or not isinstance(one, allowed):
        return None
    null = null_of(first, types[first]) | null_of(second, types[second])
    return ~null & compare(pl.col(first), pl.col(second)).fill_null(value=False)


def _names_of_pair(arguments: Arguments) -> tuple[str, str]:
    return arguments["column_A"], arguments["column_B"]


def _bounds(arguments: Arguments) -> list[tuple[Any, bool, bool]]:
    """Return the bounds that there are, each with whether it is strict, and whether it is the lower one."""
    low, high = arguments.get("min_value"), arguments.get("max_value")
    found = [(low, bool(arguments.get("strict_min")), True), (high, bool(arguments.get("strict_max")), False)]
    return [bound for bound in found if bound[0] is not None]


def _within(column: pl.Expr, arguments: Arguments, *, is_int: bool) -> pl.Expr | None:
    found = YES
    for bound, strict, is_low in _bounds(arguments):
        if type(bound) not in (int, float):
            return None
        side = (_int_side if is_int else _float_side)(column, bound, strict=strict, is_low=is_low)
        if side is None:
            return None
        found &= side
    return found


def _int_side(column: pl.Expr, bound: float, *, strict: bool, is_low: bool) -> pl.Expr | None:
    if math.isnan(bound):
        # No int is less or greater than NaN, so such a bound excludes no row.
        return YES
    if math.isinf(bound):
        return NO if (bound > 0) == is_low else YES
    # An int is above 2.5 if it is at least 3. So the bound becomes an int that isn't strict.
    if is_low:
        whole = math.floor(bound) + 1 if strict else math.ceil(bound)
        return NO if whole > INT_MAX else column >= max(whole, INT_MIN)
    whole = math.ceil(bound) - 1 if strict else math.floor(bound)
    return NO if whole < INT_MIN else column <= min(whole, INT_MAX)


def _float_side(column: pl.Expr, bound: float, *, strict: bool, is_low: bool) -> pl.Expr | None:
    if isinstance(bound, int) and abs(bound) > EXACT:
        return None
    return YES if math.isnan(bound) else _on_side(column, pl.lit(float(bound)), strict=strict, is_low=is_low)


def _on_side(column: pl.Expr, bound: pl.Expr, *, strict: bool, is_low: bool) -> pl.Expr:
    if is_low:
        return column > bound if strict else column >= bound
    return column < bound if strict else column <= bound


def _instant(bound: object) -> int | None:
    if not isinstance(bound, str):
        return None
    try:
        at = parse_time(bound)
        return instant_us(at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def _day(bound: object) -> int | None:
    if not isinstance(bound, str):
        return None
    try:
        return (date.fromisoformat(bound) - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    except ValueError:
        return None


def _member(column: pl.Expr, options: list[Any], dtype: Any) -> pl.Expr:
    return column.is_in(pl.Series(options, dtype=dtype).implode()) if options else NO


_EXPRESSIONS: Mapping[str, Callable[[Arguments, Types], pl.Expr | None]] = {
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_values_to_be_null": _null,
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_in_type_list": _of_type,
    "expect_column_values_to_match_regex": _matches(wanted=True),
    "expect_column_values_to_match_regex_list": _matches(wanted=True),
    "expect_column_values_to_not_match_regex": _matches(wanted=False),
    "expect_column_values_to_not_match_regex_list": _matches(wanted=False),
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_be_between": _between,
    "expect_column_value_lengths_to_be_between": _lengths_between,
    "expect_column_value_lengths_to_equal": _length_equals,
    "expect_column_pair_values_to_be_equal": _pair_equal,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_greater,
}
