"""The functions `expect_...`, which users call in a method marked by `@expectations`.

Expectations of one column leave nulls out, except for the two that check for null.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, ParamSpec, TypedDict, Unpack, get_args

from caraway.errors import DefinitionError
from caraway.graph.expectations import argument_fault

__all__ = [
    "expect_column_pair_values_A_to_be_greater_than_B",
    "expect_column_pair_values_to_be_equal",
    "expect_column_pair_values_to_be_in_set",
    "expect_column_value_lengths_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_dateutil_parseable",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_regex",
    "expect_column_values_to_match_regex_list",
    "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_not_match_regex",
    "expect_column_values_to_not_match_regex_list",
    "expect_multicolumn_sum_to_equal",
]

P = ParamSpec("P")

# A column: its name, or `cls.column`.
Column = Any


class Options(TypedDict, total=False):
    """The parameters that all functions `expect_...` have.

    With `strict`, rows that fail are refused; None means as `@expectations(strict=...)` says.
    """

    result_format: str | None
    include_config: bool
    catch_exceptions: bool | None
    meta: dict[str, Any] | None
    strict: bool | None


class ConditionOptions(Options, total=False):
    """The parameters that all functions of one column have."""

    row_condition: str | None
    condition_parser: str | None


class ColumnOptions(ConditionOptions, total=False):
    """The parameters of `ConditionOptions`, and the fraction of the values that have to pass."""

    mostly: float | None


# The defaults of the parameters that several expectations have in common, in the order in which `expectation` appends
# them to the signature of each function.
_DEFAULTS = {
    "mostly": None,
    "result_format": None,
    "row_condition": None,
    "condition_parser": None,
    "include_config": True,
    "catch_exceptions": None,
    "meta": None,
    "strict": None,
}


def expectation(declared: Callable[P, None]) -> Callable[P, tuple[str, dict[str, Any]]]:
    """Return a function that returns its name in lower case and all of its arguments, defaults included.

    In the signature of the function, the members of the declared `**options` are parameters of their own. The function
    raises `DefinitionError` for an argument out of its range, and Python's TypeError for an unknown or missing one.
    """
    *own, options = inspect.signature(declared).parameters.values()
    types = get_args(options.annotation)[0].__annotations__
    common = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=types[name])
        for name, default in _DEFAULTS.items()
        if name in types
    ]
    signature = inspect.Signature([*own, *common], return_annotation=None)
    name = declared.__name__.lower()

    @functools.wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[str, dict[str, Any]]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if fault := argument_fault(name, bound.arguments):
            raise DefinitionError(f"{declared.__name__}: {fault}")
        return name, bound.arguments

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


@expectation
def expect_column_values_to_not_be_null(column: Column, **options: Unpack[ColumnOptions]) -> None:
    """Expect that values aren't null. NaN is null, empty text isn't."""


@expectation
def expect_column_values_to_be_null(column: Column, **options: Unpack[ColumnOptions]) -> None:
    """Expect that values are null."""


@expectation
def expect_column_values_to_be_of_type(column: Column, type_: str, **options: Unpack[ColumnOptions]) -> None:
    """Expect that values are of the named type: `int`, `str`, `datetime` ..., or an alias of numpy or Spark."""


@expectation
def expect_column_values_to_be_in_type_list(
    column: Column, type_list: Sequence[str], **options: Unpack[ColumnOptions]
) -> None:
    """Expect that values are of one of the named types."""


@expectation
def expect_column_values_to_be_in_set(
    column: Column,
    value_set: Collection[Any],
    mostly: float | None = None,
    parse_strings_as_datetimes: bool | None = None,
    **options: Unpack[ConditionOptions],
) -> None:
    """Expect that values are in a set."""


@expectation
def expect_column_values_to_not_be_in_set(
    column: Column,
    value_set: Collection[Any],
    mostly: float | None = None,
    parse_strings_as_datetimes: bool | None = None,
    **options: Unpack[ConditionOptions],
) -> None:
    """Expect that values aren't in a set."""


@expectation
def expect_column_values_to_be_between(
    column: Column,
    min_value: Any = None,
    max_value: Any = None,
    strict_min: bool = False,
    strict_max: bool = False,
    allow_cross_type_comparisons: bool | None = None,
    parse_strings_as_datetimes: bool = False,
    output_strftime_format: str | None = None,
    **options: Unpack[ColumnOptions],
) -> None:
    """Expect that values lie within bounds, which are included unless strict. An absent bound is open."""


@expectation
def expect_column_value_lengths_to_be_between(
    column: Column, min_value: int | None = None, max_value: int | None = None, **options: Unpack[ColumnOptions]
) -> None:
    """Expect that texts have a length within bounds, both included. An absent bound is open."""


@expectation
def expect_column_value_lengths_to_equal(column: Column, value: int, **options: Unpack[ColumnOptions]) -> None:
    """Expect that texts have this length."""


@expectation
def expect_column_values_to_match_regex(column: Column, regex: str, **options: Unpack[ColumnOptions]) -> None:
    """Expect that a pattern is found anywhere in the text."""


@expectation
def expect_column_values_to_not_match_regex(column: Column, regex: str, **options: Unpack[ColumnOptions]) -> None:
    """Expect that a pattern is found nowhere in the text."""


@expectation
def expect_column_values_to_match_regex_list(
    column: Column, regex_list: Sequence[str], match_on: str = "any", **options: Unpack[ColumnOptions]
) -> None:
    """Expect that one of the patterns (`match_on="all"`: each of them) is found in the text."""


@expectation
def expect_column_values_to_not_match_regex_list(
    column: Column, regex_list: Sequence[str], **options: Unpack[ColumnOptions]
) -> None:
    """Expect that none of the patterns is found in the text."""


@expectation
def expect_column_values_to_match_strftime_format(
    column: Column, strftime_format: str, **options: Unpack[ColumnOptions]
) -> None:
    """Expect that texts are times of the format."""


@expectation
def expect_column_values_to_be_dateutil_parseable(column: Column, **options: Unpack[ColumnOptions]) -> None:
    """Expect that python-dateutil can read the texts as times."""


@expectation
def expect_column_values_to_be_json_parseable(column: Column, **options: Unpack[ColumnOptions]) -> None:
    """Expect that texts are JSON."""


@expectation
def expect_column_values_to_match_json_schema(
    column: Column, json_schema: dict[str, Any], **options: Unpack[ColumnOptions]
) -> None:
    """Expect that texts are JSON that conforms to the schema."""


@expectation
def expect_column_pair_values_to_be_equal(
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    ignore_row_if: str = "both_values_are_missing",
    **options: Unpack[Options],
) -> None:
    """Expect that A equals B."""


@expectation
def expect_column_pair_values_A_to_be_greater_than_B(  # noqa: N802 (the API's name)
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    or_equal: bool | None = None,
    parse_strings_as_datetimes: bool = False,
    allow_cross_type_comparisons: bool | None = None,
    ignore_row_if: str = "both_values_are_missing",
    **options: Unpack[Options],
) -> None:
    """Expect that A is greater than B, or equal if `or_equal`."""


@expectation
def expect_column_pair_values_to_be_in_set(
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    value_pairs_set: Collection[tuple[Any, Any]],
    ignore_row_if: str = "both_values_are_missing",
    **options: Unpack[Options],
) -> None:
    """Expect that (A, B) is one of the pairs."""


@expectation
def expect_multicolumn_sum_to_equal(
    column_list: Sequence[Column], sum_total: float, **options: Unpack[Options]
) -> None:
    """Expect that the values of a row's columns add up to the total."""
