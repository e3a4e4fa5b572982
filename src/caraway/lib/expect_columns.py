"""Expectations of the values of one column. Nulls are left out, except by the two checks of null."""

from collections.abc import Collection, Sequence
from typing import Any

from caraway.lib.expectation_calls import Column, expectation


@expectation
def expect_column_values_to_not_be_null(
    column: Column,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values aren't null. NaN is null, empty text isn't."""


@expectation
def expect_column_values_to_be_null(
    column: Column,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values are null."""


@expectation
def expect_column_values_to_be_of_type(
    column: Column,
    type_: str,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values are of the named type: `int`, `str`, `datetime` ..., or an alias of numpy or Spark."""


@expectation
def expect_column_values_to_be_in_type_list(
    column: Column,
    type_list: Sequence[str],
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values are of one of the named types."""


@expectation
def expect_column_values_to_be_in_set(
    column: Column,
    value_set: Collection[Any],
    mostly: float | None = None,
    parse_strings_as_datetimes: bool | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values are in a set."""


@expectation
def expect_column_values_to_not_be_in_set(
    column: Column,
    value_set: Collection[Any],
    mostly: float | None = None,
    parse_strings_as_datetimes: bool | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
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
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that values lie within bounds, which are included unless strict. An absent bound is open."""


@expectation
def expect_column_value_lengths_to_be_between(
    column: Column,
    min_value: int | None = None,
    max_value: int | None = None,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that texts are of a length within bounds, both included. An absent bound is open."""


@expectation
def expect_column_value_lengths_to_equal(
    column: Column,
    value: int,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that texts are of a length."""


@expectation
def expect_column_values_to_match_regex(
    column: Column,
    regex: str,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that a pattern is found anywhere in the text."""


@expectation
def expect_column_values_to_not_match_regex(
    column: Column,
    regex: str,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that a pattern is found nowhere in the text."""


@expectation
def expect_column_values_to_match_regex_list(
    column: Column,
    regex_list: Sequence[str],
    match_on: str = "any",
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that one of the patterns (`match_on="all"`: each of them) is found in the text."""


@expectation
def expect_column_values_to_not_match_regex_list(
    column: Column,
    regex_list: Sequence[str],
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that none of the patterns is found in the text."""


@expectation
def expect_column_values_to_match_strftime_format(
    column: Column,
    strftime_format: str,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that texts are times of the format."""


@expectation
def expect_column_values_to_be_dateutil_parseable(
    column: Column,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that python-dateutil can read the texts as times."""


@expectation
def expect_column_values_to_be_json_parseable(
    column: Column,
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that texts are JSON."""


@expectation
def expect_column_values_to_match_json_schema(
    column: Column,
    json_schema: dict[str, Any],
    mostly: float | None = None,
    result_format: str | None = None,
    row_condition: str | None = None,
    condition_parser: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that texts are JSON that conforms to the schema."""
