"""Sums of intervals, made of limbs, are those of the index to the bit."""

import math
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.offline.kernel import exact_sums
from caraway.offline.kernel.exact_sums import ExactSums
from caraway.process.exact_sums import Moments

FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan])
NEAR_FLOATS = st.floats(-1e9, 1e9, allow_subnormal=False) | st.integers(-1000, 1000).map(lambda cents: cents / 100)
INTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 0, 1, -1, 2**32, -(2**32)])


def expected(values: list[Any], *, squares: bool) -> Moments:
    moments = Moments()
    if values and isinstance(values[0], float):
        moments.add_floats(values, squares=squares)
    else:
        moments.add_ints(values, squares=squares)
    return moments


@given(
    st.lists(FLOATS, max_size=30) | st.lists(NEAR_FLOATS, max_size=30) | st.lists(INTS, max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=10),
    st.booleans(),
)
def test_each_interval_has_the_moments_of_its_values(
    values: list[Any], ends: list[tuple[int, int]], squares: bool
) -> None:
    kind: Any = np.int64 if values and isinstance(values[0], int) else np.float64
    intervals = [tuple(sorted((min(a, len(values)), min(b, len(values))))) for a, b in ends]
    first, last = (np.array([interval[side] for interval in intervals], np.int64) for side in (0, 1))
    sums = ExactSums(np.array(values, kind), squares=squares)
    for (begin, end), found in zip(intervals, sums.moments(first, last), strict=True):
        assert found.pack() == expected(values[begin:end], squares=squares).pack()


@given(
    st.lists(FLOATS, min_size=1, max_size=30)
    | st.lists(NEAR_FLOATS, min_size=1, max_size=30)
    | st.lists(INTS, min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30)), max_size=10),
    st.sampled_from([1, 100, 10**10]),
)
# The variance is greater than the greatest float.
@example([0.0, 2.6815615859885194e154], [(0, 2)], 1)
def test_results_of_intervals_are_those_of_their_moments(
    values: list[Any], ends: list[tuple[int, int]], unit: int
) -> None:
    kind: Any = np.int64 if isinstance(values[0], int) else np.float64
    intervals = [(min(begin, len(values) - 1), min(begin + size, len(values))) for begin, size in ends]
    first, last = (np.array([interval[side] for interval in intervals], np.int64) for side in (0, 1))
    sums = ExactSums(np.array(values, kind), squares=True)
    every = [expected(values[begin:end], squares=True) for begin, end in intervals]
    assert same(sums.sums(first, last), [moments.sum() for moments in every])
    assert same(sums.means(first, last, unit), [moments.mean(unit) for moments in every])
    assert same(sums.variances(first, last, unit), [moments.variance(unit) for moments in every])
    assert same(sums.stddevs(first, last, unit), [moments.stddev(unit) for moments in every])


@given(
    st.lists(FLOATS, min_size=1, max_size=12)
    | st.lists(NEAR_FLOATS, min_size=1, max_size=12)
    | st.lists(INTS, min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_values_that_leave_count_for_nothing(values: list[Any], rng: random.Random) -> None:
    kind: Any = np.int64 if isinstance(values[0], int) else np.float64
    # Each value enters, and some leave again, in any order.
    events = [(place, 1) for place in range(len(values))]
    rng.shuffle(events)
    for place in rng.sample(range(len(values)), rng.randrange(len(values))):
        entered = events.index((place, 1))
        events.insert(rng.randrange(entered + 1, len(events) + 1), (place, -1))
    rows = np.array([values[place] for place, _ in events], kind)
    sums = ExactSums(rows, squares=True, weights=np.array([weight for _, weight in events], np.int64))
    for last in range(1, len(events) + 1):
        left = [values[p] for p, weight in events[:last] if weight == 1 and (p, -1) not in events[:last]]
        interval = np.zeros(1, np.int64), np.array([last], np.int64)
        assert sums.counts(*interval).tolist() == [len(left)]
        if left:
            moments = expected(left, squares=True)
            assert same(sums.sums(*interval), [moments.sum()])
            assert same(sums.means(*interval), [moments.mean()])
            assert same(sums.variances(*interval), [moments.variance()])
            assert same(sums.stddevs(*interval), [moments.stddev()])


def same(found: Any, wanted: list[float]) -> bool:
    """Return whether floats have the same bits; all NaN are equal."""
    pairs = zip(found.tolist(), wanted, strict=True)
    return all((math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b) for a, b in pairs)


def test_many_rows_of_one_size_are_added_without_loss() -> None:
    values = np.full(100_000, 2.0**53 - 1)
    values[::3] *= -1
    found, all_rows = ExactSums(values, squares=True).moments(np.array([7, 0]), np.array([99_990, 100_000]))
    assert found.pack() == expected(values[7:99_990].tolist(), squares=True).pack()
    assert all_rows.pack() == expected(values.tolist(), squares=True).pack()


def test_more_rows_than_can_be_added_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "MAX_ROWS", 3)
    with pytest.raises(ValueError, match="4 rows are too many at once, 3 at most"):
        ExactSums(np.zeros(4), squares=False)
