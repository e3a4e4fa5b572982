"""Quotients of wide integers are rounded as Python rounds its own, once."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caraway.offline.kernel.rounding import MAX_DIVISOR, ratios, roots
from caraway.process.exact_sums import _rounded_root

LIMBS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-3, 3)
    | st.sampled_from([2**32 - 1, 2**32, -(2**32), 2**53, 2**54 + 1])
)


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


@given(
    st.integers(1, 6).flatmap(
        lambda size: st.lists(st.lists(LIMBS, min_size=size, max_size=size), min_size=1, max_size=6)
    ),
    st.lists(st.integers(1, MAX_DIVISOR) | st.integers(1, 9), min_size=6, max_size=6),
    st.integers(-1200, 0) | st.integers(-80, 0),
    st.integers(0, 2),
)
def test_quotients_are_rounded_once(columns: list[list[int]], divisors: list[int], exponent: int, times: int) -> None:
    sums: Any = np.array(columns, np.int64).T
    chosen = np.array(divisors[: len(columns)], np.int64)
    found, right = ratios(sums, chosen, exponent, times)
    for column, divisor, value, trusted in zip(columns, divisors, found.tolist(), right.tolist(), strict=False):
        integer = sum(limb << 32 * number for number, limb in enumerate(column))
        expected = nearest(Fraction(integer, divisor**times) * Fraction(2) ** exponent)
        if trusted:
            assert value == expected
            assert abs(value) > 2.0**-1023 or integer == 0
        else:
            assert abs(expected) < 2.0**-1021


def test_ties_go_to_the_even_float() -> None:
    tie = 2**53 + 1
    sums = np.array([[tie & 0xFFFFFFFF, (tie + 2) & 0xFFFFFFFF], [tie >> 32, (tie + 2) >> 32]], np.int64)
    found, right = ratios(sums, np.array([1, 1]), 0, 0)
    assert found.tolist() == [2.0**53, 2.0**53 + 4]
    assert right.all()


def limbs_of(numbers: list[int], size: int) -> Any:
    return np.array([[number >> 32 * limb & 0xFFFFFFFF for number in numbers] for limb in range(size)], np.int64)


# Squares of numbers of 54 bits, the odd ones of which are in the middle of two floats, and their neighbours.
MIDDLES = st.tuples(st.integers(2**53, 2**54 - 1), st.integers(-2, 2), st.integers(0, 40)).map(
    lambda parts: max(0, parts[0] ** 2 + parts[1]) << parts[2]
)


@given(
    st.lists(MIDDLES | st.integers(0, 2**160) | st.integers(0, 2**64) | st.integers(0, 9), min_size=1, max_size=8),
    st.lists(st.integers(1, MAX_DIVISOR) | st.integers(1, 3), min_size=8, max_size=8),
    st.integers(-1200, 0) | st.integers(-80, 0),
)
def test_roots_are_rounded_once_or_left_to_others(numbers: list[int], divisors: list[int], exponent: int) -> None:
    chosen = np.array(divisors[: len(numbers)], np.int64)
    found, right = roots(limbs_of(numbers, 6), chosen, 2 * exponent)
    for number, divisor, value, trusted in zip(numbers, divisors, found.tolist(), right.tolist(), strict=False):
        if trusted:
            assert value == _rounded_root(number, divisor**2, exponent)


def test_nearly_all_roots_are_right() -> None:
    rng = np.random.default_rng(3)
    numbers = [int(a) * int(b) + 1 for a, b in rng.integers(1, 2**62, (20_000, 2))]
    divisors = rng.integers(1, MAX_DIVISOR, len(numbers))
    found, right = roots(limbs_of(numbers, 5), divisors, -200)
    assert right.mean() > 0.98
    expected = [_rounded_root(n, d**2, -100) for n, d in zip(numbers, divisors.tolist(), strict=True)]
    assert (found == np.array(expected))[right].all()
