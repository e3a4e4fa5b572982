"""Expectations of several columns of a row."""

from collections.abc import Collection, Sequence
from typing import Any

from caraway.lib.expectation_calls import Column, expectation


@expectation
def expect_column_pair_values_to_be_equal(
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    ignore_row_if: str = "both_values_are_missing",
    result_format: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that A is B."""


@expectation
def expect_column_pair_values_A_to_be_greater_than_B(  # noqa: N802 (the API's name)
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    or_equal: bool | None = None,
    parse_strings_as_datetimes: bool = False,
    allow_cross_type_comparisons: bool | None = None,
    ignore_row_if: str = "both_values_are_missing",
    result_format: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that A is greater than B, or equal if `or_equal`."""


@expectation
def expect_column_pair_values_to_be_in_set(
    column_A: Column,  # noqa: N803 (the API's name)
    column_B: Column,  # noqa: N803 (the API's name)
    value_pairs_set: Collection[tuple[Any, Any]],
    ignore_row_if: str = "both_values_are_missing",
    result_format: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that (A, B) is one of the pairs."""


@expectation
def expect_multicolumn_sum_to_equal(
    column_list: Sequence[Column],
    sum_total: float,
    result_format: str | None = None,
    include_config: bool = True,
    catch_exceptions: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Expect that the values of a row's columns add up to the total."""
