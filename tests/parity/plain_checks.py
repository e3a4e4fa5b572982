"""The meaning of the expectations that `suites` draws, once more, as naive as possible.

This module imports nothing of Caraway. Values are in stored form: numbers, texts, bytes and bools are Python's.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Arguments = Mapping[str, Any]


def outcome(name: str, arguments: Arguments, row: Row) -> bool | None:
    """Return whether a row is as expected; None if the expectation doesn't look at it."""
    if not _holds(arguments.get("row_condition"), row):
        return None
    if "column_A" in arguments:
        return _of_pair(name, arguments, row[arguments["column_A"]], row[arguments["column_B"]])
    value = row[arguments["column"]]
    if name == "expect_column_values_to_not_be_null":
        return not is_missing(value)
    if name == "expect_column_values_to_be_null":
        return is_missing(value)
    return None if is_missing(value) else _OF_VALUES[name](value, arguments)


def is_missing(value: object) -> bool:
    """Return whether a value is null; NaN is."""
    return value is None or (isinstance(value, float) and value != value)  # noqa: PLR0124 (only NaN is unequal to itself)


def _holds(condition: str | None, row: Row) -> bool:
    if condition is None:
        return True
    column, sign, bound = condition.split(" ")
    assert sign == ">"
    return bool(row[column] > int(bound))


def _of_pair(name: str, arguments: Arguments, first: Any, second: Any) -> bool | None:
    missing = is_missing(first) + is_missing(second)
    ignored = arguments.get("ignore_row_if", "both_values_are_missing")
    if missing == 2 and ignored != "neither":
        return None
    if missing:
        return None if ignored == "either_value_is_missing" else False
    if name == "expect_column_pair_values_to_be_equal":
        return bool(first == second)
    return bool(first > second or (arguments["or_equal"] and first == second))


def _between(value: Any, arguments: Arguments) -> bool:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if low is not None and (value < low or (value == low and arguments.get("strict_min"))):
        return False
    return not (high is not None and (value > high or (value == high and arguments.get("strict_max"))))


def _has(text: str, pattern: str) -> bool:
    """Return whether a text has a pattern of `suites`: `\\W` and the like know ASCII only, `$` is the end itself."""
    return re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None


_OF_VALUES: Mapping[str, Callable[[Any, Arguments], bool]] = {
    "expect_column_values_to_be_between": _between,
    "expect_column_value_lengths_to_be_between": lambda value, given: (
        given["min_value"] <= len(value) <= given["max_value"]
    ),
    "expect_column_values_to_be_in_set": lambda value, given: value in given["value_set"],
    "expect_column_values_to_not_be_in_set": lambda value, given: value not in given["value_set"],
    "expect_column_values_to_match_regex": lambda value, given: _has(value, given["regex"]),
    "expect_column_values_to_not_match_regex": lambda value, given: not _has(value, given["regex"]),
    "expect_column_values_to_be_of_type": lambda value, given: isinstance(
        value, {"bytes": bytes, "str": str}[given["type_"]]
    ),
}
