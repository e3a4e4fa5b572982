"""The meaning of each check of an expectation, row by row.

Values are Python's, as `caraway.dtypes.values.decode` returns them. Nothing is rejected here: callers count the rows.
An exception inside a check counts as a failure of the row.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from dateutil.parser import parse as parse_time
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from caraway.dtypes.values import is_null
from caraway.graph.expectations import ExpectationSuite, arguments_of, columns_of, type_named
from caraway.process.patterns import searcher

Arguments = Mapping[str, Any]
# A function that returns whether a value, or the values of several columns, are as expected.
Predicate = Callable[..., bool]


def expectation_names(suite: ExpectationSuite) -> tuple[str, ...]:
    """Return a name for each check: its function and columns, with a number if it is repeated."""
    seen: Counter[str] = Counter()
    names = []
    for item in suite.expectations:
        name = f"{item.name}:{','.join(columns_of(arguments_of(item)))}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}:{seen[name]}")
    return tuple(names)


def predicate_of(name: str, arguments: Arguments) -> Predicate:
    """Return the condition of a check; it may raise, which means that a row fails.

    Args:
        name: The name of the check.
        arguments: Its arguments, in which times, days and decimals are text.
    """
    try:
        return _PREDICATES[name](arguments)
    except Exception as error:  # noqa: BLE001 (a check that can't be carried out fails for each row)
        return _failing(error)


def is_skipped(name: str, row: Sequence[Any], arguments: Arguments) -> bool:
    """Return whether a check leaves a row out, which has the values of its columns."""
    return _SKIPS.get(name, _null_is_skipped)(row, arguments)


def skips_nothing(name: str) -> bool:
    """Return whether a check looks at each row."""
    return _SKIPS.get(name) is _nothing_is_skipped


def holds(predicate: Predicate, row: Sequence[Any]) -> bool:
    """Return whether a row is as expected."""
    try:
        return bool(predicate(*row))
    except Exception:  # noqa: BLE001 (a check that breaks on a row has not passed)
        return False


def _failing(error: Exception) -> Predicate:
    def fails(*_values: object) -> bool:
        raise error

    return fails


# Rows that a check leaves out


def _null_is_skipped(row: Sequence[Any], _arguments: Arguments) -> bool:
    return is_null(row[0])


def _nothing_is_skipped(_row: Sequence[Any], _arguments: Arguments) -> bool:
    return False


def _pair_is_skipped(row: Sequence[Any], arguments: Arguments) -> bool:
    nulls = sum(map(is_null, row))
    match arguments.get("ignore_row_if"):
        case "neither":
            return False
        case "either_value_is_missing":
            return nulls > 0
        case _:
            return nulls == len(row)


def _empty_row_is_skipped(row: Sequence[Any], _arguments: Arguments) -> bool:
    return all(map(is_null, row))


_SKIPS: Mapping[str, Callable[[Sequence[Any], Arguments], bool]] = {
    "expect_column_values_to_not_be_null": _nothing_is_skipped,
    "expect_column_values_to_be_null": _nothing_is_skipped,
    "expect_column_pair_values_to_be_equal": _pair_is_skipped,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_is_skipped,
    "expect_column_pair_values_to_be_in_set": _pair_is_skipped,
    "expect_multicolumn_sum_to_equal": _empty_row_is_skipped,
}


# Conditions of the checks


def _of_type(names: Sequence[str]) -> Predicate:
    kinds = {type_named(name) for name in names}
    return lambda value: _kind(value) in kinds


def _kind(value: object) -> str | None:
    match value:
        case bool() | np.bool_():
            return "bool"
        case int() | np.integer():
            return "int"
        case float() | np.floating():
            return "float"
        case str():
            return "str"
        case bytes():
            return "bytes"
        case datetime() | np.datetime64():
            return "datetime"
        case date():
            return "date"
        case Decimal():
            return "Decimal"
        case list() | tuple() | np.ndarray():
            return "list"
        case Mapping():
            return "dict"
        case _:
            return None


def _in_set(arguments: Arguments) -> Predicate:
    options = arguments["value_set"]
    read = _reader(arguments)
    return lambda value: any(_equal(read(value), _as(read(option), read(value))) for option in options)


def _not_in_set(arguments: Arguments) -> Predicate:
    member = _in_set(arguments)
    return lambda value: not member(value)


def _between(arguments: Arguments) -> Predicate:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    read = _reader(arguments)

    def holds(value: object) -> bool:
        found: Any = _instant(read(value))
        if low is not None:
            bound = _as(read(low), found)
            if found < bound or (arguments.get("strict_min") and found == bound):
                return False
        if high is not None:
            bound = _as(read(high), found)
            if found > bound or (arguments.get("strict_max") and found == bound):
                return False
        # NaN gets here whatever the bounds are, because every comparison with NaN is false. NaN is in no range, so it
        # fails. NaN is the one value that isn't equal to itself.
        return bool(found == found)  # noqa: PLR0124

    return holds


def _length_between(arguments: Arguments) -> Predicate:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    return lambda value: (low is None or len(value) >= low) and (high is None or len(value) <= high)


def _length_equals(arguments: Arguments) -> Predicate:
    return lambda value: len(value) == arguments["value"]


def _patterns(patterns: Sequence[str], wanted: Callable[[Sequence[bool]], bool]) -> Predicate:
    searchers = [searcher(pattern) for pattern in patterns]
    return lambda value: wanted([found(value) for found in searchers])


def _none(found: Sequence[bool]) -> bool:
    return not any(found)


def _unless_not_text(predicate: Predicate) -> Predicate:
    """Make a predicate true for values that aren't text: a pattern says nothing about those."""

    def holds(value: object) -> bool:
        if not isinstance(value, str):
            raise TypeError(f"{type(value).__name__} is no text")
        return predicate(value)

    return holds


def _strftime(arguments: Arguments) -> Predicate:
    return lambda value: isinstance(datetime.strptime(value, arguments["strftime_format"]), datetime)  # noqa: DTZ007 (whether it can be read)


def _dateutil(_arguments: Arguments) -> Predicate:
    return lambda value: isinstance(parse_time(value), datetime)


def _json(_arguments: Arguments) -> Predicate:
    def holds(value: str) -> bool:
        json.loads(value)
        return True

    return holds


def _json_schema(arguments: Arguments) -> Predicate:
    schema = arguments["json_schema"]
    # An empty registry is given, since by default jsonschema would fetch the documents that a schema refers to, from
    # any address.
    cls = extend(validator_for(schema), {"pattern": _schema_pattern})  # type: ignore[no-untyped-call]
    validator = cls(schema, registry=Registry())
    return lambda value: validator.is_valid(json.loads(value))


def _schema_pattern(_validator: object, pattern: str, text: object, _schema: object) -> Iterator[ValidationError]:
    if isinstance(text, str) and not searcher(pattern)(text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


def _pair_equal(_arguments: Arguments) -> Predicate:
    return lambda first, second: not is_null(first) and not is_null(second) and _equal(first, second)


def _pair_greater(arguments: Arguments) -> Predicate:
    read = _reader(arguments)
    if arguments.get("or_equal"):
        return lambda first, second: not is_null(first) and not is_null(second) and read(first) >= read(second)
    return lambda first, second: not is_null(first) and not is_null(second) and read(first) > read(second)


def _pair_in_set(arguments: Arguments) -> Predicate:
    pairs = arguments["value_pairs_set"]
    return lambda first, second: any(
        _same_or_both_null(first, one) and _same_or_both_null(second, other) for one, other in pairs
    )


def _sum_equals(arguments: Arguments) -> Predicate:
    total = arguments["sum_total"]
    return lambda *values: not any(map(is_null, values)) and sum(values[1:], start=values[0]) == _as(total, values[0])


_PREDICATES: Mapping[str, Callable[[Arguments], Predicate]] = {
    "expect_column_values_to_not_be_null": lambda _: lambda value: not is_null(value),
    "expect_column_values_to_be_null": lambda _: is_null,
    "expect_column_values_to_be_of_type": lambda given: _of_type([given["type_"]]),
    "expect_column_values_to_be_in_type_list": lambda given: _of_type(given["type_list"]),
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_be_between": _between,
    "expect_column_value_lengths_to_be_between": _length_between,
    "expect_column_value_lengths_to_equal": _length_equals,
    "expect_column_values_to_match_regex": lambda given: searcher(given["regex"]),
    "expect_column_values_to_not_match_regex": lambda given: _unless_not_text(_patterns([given["regex"]], _none)),
    "expect_column_values_to_match_regex_list": lambda given: _patterns(
        given["regex_list"], all if given.get("match_on") == "all" else any
    ),
    "expect_column_values_to_not_match_regex_list": lambda given: _unless_not_text(
        _patterns(given["regex_list"], _none)
    ),
    "expect_column_values_to_match_strftime_format": _strftime,
    "expect_column_values_to_be_dateutil_parseable": _dateutil,
    "expect_column_values_to_be_json_parseable": _json,
    "expect_column_values_to_match_json_schema": _json_schema,
    "expect_column_pair_values_to_be_equal": _pair_equal,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_greater,
    "expect_column_pair_values_to_be_in_set": _pair_in_set,
    "expect_multicolumn_sum_to_equal": _sum_equals,
}


# The functions below compare values with arguments. Arguments come as JSON, in which times, days and decimals are text.


def _reader(arguments: Arguments) -> Callable[[Any], Any]:
    """Return a function that reads texts as times, or the identity if the arguments don't ask for that."""
    if not arguments.get("parse_strings_as_datetimes"):
        return _instant
    return lambda value: _instant(parse_time(value)) if isinstance(value, str) else _instant(value)


def _instant(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


def _as(argument: Any, value: object) -> Any:
    """Convert an argument, in which times, days and decimals are text, to the type of `value`."""
    match value:
        case datetime() if isinstance(argument, str):
            return _instant(parse_time(argument))
        case datetime():
            return argument
        case date() if isinstance(argument, str):
            return date.fromisoformat(argument)
        case Decimal() if isinstance(argument, (int, float, str)) and not isinstance(argument, bool):
            return Decimal(str(argument))
        case _:
            return argument


def _equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal; unlike in Python, a bool equals no number."""
    return (_kind(first) == "bool") == (_kind(second) == "bool") and bool(_instant(first) == _instant(second))


def _same_or_both_null(value: object, option: object) -> bool:
    if is_null(value) or is_null(option):
        return is_null(value) and is_null(option)
    return _equal(value, _as(option, value))
