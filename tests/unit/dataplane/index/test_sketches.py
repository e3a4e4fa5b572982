"""Sketches: their distance from the truth, and their independence of the order of values."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.index.aggregates.sketches import (
    NAN_BIN,
    REGISTERS,
    bin_middle,
    bin_of,
    distinct_count,
    element,
    observe,
    united,
)

numbers = st.floats(allow_nan=False)


def registers_of(values: range) -> bytearray:
    registers = bytearray(REGISTERS)
    for value in values:
        observe(registers, str(value).encode())
    return registers


@pytest.mark.parametrize("count", [0, 1, 5, 100, 300, 1000, 5000, 20_000])
def test_the_number_of_distinct_values_is_near(count: int) -> None:
    found = distinct_count(registers_of(range(count)))
    # The tolerance is three standard errors of 4,096 registers; few values are counted exactly.
    assert abs(found - count) <= (0.05 * count if count > 10 else 0)


def test_registers_unite_to_those_of_all_values() -> None:
    both = united(registers_of(range(700)), bytes(registers_of(range(500, 1500))))
    assert both == registers_of(range(1500))


@given(numbers, numbers)
def test_bins_are_in_the_order_of_numbers(left: float, right: float) -> None:
    if left <= right:
        assert bin_of(left) <= bin_of(right) < NAN_BIN
    assert bin_of(-left) == -bin_of(left)


@given(numbers)
def test_the_middle_of_a_bin_is_near_all_its_numbers(number: float) -> None:
    middle = bin_middle(bin_of(number))
    if abs(number) < 2**-1021:
        # Below the smallest normal number bins have an absolute width.
        assert abs(middle - number) <= 2**-1028
    else:
        assert math.isclose(middle, number, rel_tol=1 / 128)


def test_zero_infinities_and_nan_are_themselves() -> None:
    assert [bin_middle(bin_of(x)) for x in (0.0, -0.0, math.inf, -math.inf)] == [0.0, 0.0, math.inf, -math.inf]
    assert math.isnan(bin_middle(bin_of(math.nan)))


@given(st.lists(numbers, min_size=1), st.floats(0, 1))
def test_an_element_is_near_that_of_the_sorted_numbers(values: list[float], share: float) -> None:
    bins: dict[int, int] = {}
    for value in values:
        bins[bin_of(value)] = bins.get(bin_of(value), 0) + 1
    position = min(len(values) - 1, int(share * len(values)))
    assert bin_of(sorted(values)[position]) == bin_of(element(bins, position))


def test_beyond_the_last_element_there_is_none() -> None:
    with pytest.raises(IndexError, match="there are 3 numbers, none at position 3"):
        element({1: 1, 5: 2}, 3)


def test_estimates_do_not_depend_on_the_order() -> None:
    order = list(range(2000))
    random.Random(1).shuffle(order)
    shuffled = bytearray(REGISTERS)
    for value in order:
        observe(shuffled, str(value).encode())
    assert shuffled == registers_of(range(2000))
