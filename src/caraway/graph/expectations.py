"""Expectations of a dataset's owner on its rows. Rows that fail are counted, or refused if an expectation is strict."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from caraway.errors import DefinitionError
from caraway.graph.json_schemas import check_schema
from caraway.process.patterns import searcher

# The parameters of checks that take the name of one column, and below them the parameter that takes a list of names.
COLUMN_PARAMETERS = ("column", "column_A", "column_B", "column_a", "column_b")
COLUMN_LIST_PARAMETER = "column_list"

EXPECTATION_NAMES = frozenset(
    {
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_be_between",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_not_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_be_dateutil_parseable",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_match_json_schema",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_in_set",
        "expect_multicolumn_sum_to_equal",
    }
)
# The values of `ignore_row_if`: a check of two columns leaves out the rows that lack both values, those that lack at
# least one of them, or no rows.
IGNORE_ROW_IF = ("both_values_are_missing", "either_value_is_missing", "neither")
MATCH_ON = ("any", "all")
# The names by which an argument of a check may call each type: those of Python and this API, numpy, pandas and Spark.
TYPE_NAMES: Mapping[str, frozenset[str]] = {
    "int": frozenset(
        {"int", "int8", "int16", "int32", "int64", "integer", "long", "bigint", "IntegerType", "LongType"}
    ),
    "float": frozenset({"float", "float16", "float32", "float64", "double", "FloatType", "DoubleType"}),
    "str": frozenset({"str", "string", "str_", "StringType"}),
    "bool": frozenset({"bool", "bool_", "boolean", "BooleanType"}),
    "bytes": frozenset({"bytes", "binary", "bytes_", "BinaryType"}),
    "datetime": frozenset({"datetime", "datetime64", "datetime64[ns]", "Timestamp", "timestamp", "TimestampType"}),
    "date": frozenset({"date", "DateType"}),
    "Decimal": frozenset({"Decimal", "decimal", "DecimalType"}),
    "list": frozenset({"list", "List", "array", "ndarray", "ArrayType"}),
    "dict": frozenset({"dict", "Dict", "map", "struct", "MapType", "StructType"}),
}
# A check with this argument refuses the rows that fail it. A check without the argument only counts such rows.
STRICT = "strict"
# The languages of a `row_condition`.
CONDITION_PARSERS = ("pandas",)
_BOUNDED = ("expect_column_values_to_be_between", "expect_column_value_lengths_to_be_between")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One check: the name of its function in lower case, and its arguments other than None, as canonical JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationSuite:
    """All checks of a dataset, with their own version."""

    name: str
    version: int
    expectations: tuple[Expectation, ...]


NO_EXPECTATIONS = ExpectationSuite(name="", version=0, expectations=())


def arguments_of(expectation: Expectation) -> dict[str, Any]:
    """Return the arguments of a check; those that were None are absent.

    Raises `ValueError` if they aren't a JSON object; a commit refuses such checks.
    """
    found = json.loads(expectation.arguments)
    if not isinstance(found, dict):
        raise ValueError(f"{expectation.arguments[:100]!r} is no JSON object")  # noqa: TRY004 (as for other wrong text)
    return found


def is_strict(expectation: Expectation) -> bool:
    """Return whether a check refuses the rows that fail it; one whose arguments can't be read doesn't."""
    try:
        return arguments_of(expectation).get(STRICT) is True
    except ValueError:
        return False


def strict_part(suite: ExpectationSuite | None) -> ExpectationSuite | None:
    """Return the strict checks of a dataset, None if it has none.

    They say which rows a dataset has, so they are part of its definition. Their order and the version of the suite say
    nothing about that: the part is sorted, and its version is 0.
    """
    found = () if suite is None else tuple(filter(is_strict, suite.expectations))
    if suite is None or not found:
        return None
    return replace(suite, version=0, expectations=tuple(sorted(found, key=lambda one: (one.name, one.arguments))))


def columns_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that a check's arguments name, in order."""
    single = [str(arguments[name]) for name in COLUMN_PARAMETERS if arguments.get(name) is not None]
    return (*single, *map(str, arguments.get(COLUMN_LIST_PARAMETER) or ()))


def argument_fault(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the fault in the arguments of a check, None if there is none."""
    mostly = arguments.get("mostly")
    if mostly is not None and (
        isinstance(mostly, bool) or not isinstance(mostly, (int, float)) or not 0 <= mostly <= 1
    ):
        return f"mostly is a share from 0 to 1, not {mostly!r}"
    strict = arguments.get(STRICT)
    if strict is not None and not isinstance(strict, bool):
        return f"strict is True or False, not {strict!r}"
    if strict and mostly is not None and mostly < 1:
        return (
            f"strict=True refuses each row that fails, and mostly={mostly!r} lets some of them fail; leave out one of "
            "the two (strict=False for a single check of strict expectations)"
        )
    ignore = arguments.get("ignore_row_if")
    if ignore is not None and ignore not in IGNORE_ROW_IF:
        return f"ignore_row_if is one of {', '.join(IGNORE_ROW_IF)}, not {ignore!r}"
    match_on = arguments.get("match_on")
    if match_on is not None and match_on not in MATCH_ON:
        return f"match_on is one of {', '.join(MATCH_ON)}, not {match_on!r}"
    if name in _BOUNDED and arguments.get("min_value") is None and arguments.get("max_value") is None:
        return "min_value and max_value are both absent; give one bound at least"
    try:
        for pattern in (*([arguments["regex"]] if "regex" in arguments else []), *arguments.get("regex_list", ())):
            searcher(pattern)
        check_schema(json.loads(json.dumps(arguments.get("json_schema"), default=str)))
    except DefinitionError as error:
        return str(error)
    return None


def type_named(name: str) -> str | None:
    """Return the type that a name stands for, None if it names no type."""
    spelled = name.lower().replace(" ", "").replace(",utc", "")
    return next((kind for kind, names in TYPE_NAMES.items() if spelled in {n.lower() for n in names}), None)


def unsupported(arguments: Mapping[str, Any]) -> str | None:
    """Return the argument of a check that isn't supported, None if all are."""
    parser = arguments.get("condition_parser")
    if parser is not None and parser not in CONDITION_PARSERS:
        return f"condition_parser {parser!r} isn't supported; parsers: {', '.join(CONDITION_PARSERS)}"
    for name in (*([arguments["type_"]] if "type_" in arguments else []), *arguments.get("type_list", ())):
        if type_named(str(name)) is None:
            return f"there is no type {name!r}; types: {', '.join(TYPE_NAMES)}"
    return None
