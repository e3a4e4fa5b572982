"""Exact sums against fractions and the standard library."""

import math
import statistics
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from caraway.process.exact_sums import Moments

finite = st.floats(allow_nan=False, allow_infinity=False)
any_float = st.floats()


def of(values: list[float]) -> Moments:
    moments = Moments()
    moments.add_floats(values)
    return moments


def of_ints(values: list[int]) -> Moments:
    moments = Moments()
    moments.add_ints(values)
    return moments


def rounded(value: Fraction | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(st.lists(finite))
@example([1e16, 1.0, -1e16])
@example([5e-324, 1e308, -1e308])
@example([1.7976931348623157e308, 1.7976931348623157e308])
@example([0.1] * 10)
def test_a_sum_is_the_true_sum_rounded_once(values: list[float]) -> None:
    true = sum(map(Fraction, values), Fraction())
    assert of(values).sum() == rounded(true)
    if math.isfinite(rounded(true)) and sum(map(abs, values)) < math.inf:
        assert of(values).sum() == math.fsum(values)


@given(st.lists(finite, min_size=1))
def test_a_mean_is_the_true_mean_rounded_once(values: list[float]) -> None:
    assert of(values).mean() == rounded(sum(map(Fraction, values), Fraction()) / len(values))


@given(st.lists(finite, min_size=1, max_size=20))
@example([0.1, 0.1, 0.1])
@example([1e300, -1e300])
@example([5e-324, 0.0])
def test_a_standard_deviation_is_the_true_one_rounded_once(values: list[float]) -> None:
    assert of(values).stddev() == statistics.pstdev(map(Fraction, values))


@given(st.lists(finite, min_size=1, max_size=20))
@example([0.1, 0.1, 0.1])
@example([1e300, -1e300])
@example([5e-324, 0.0])
def test_a_variance_is_the_true_one_rounded_once(values: list[float]) -> None:
    assert of(values).variance() == rounded(statistics.pvariance(map(Fraction, values)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_ints_are_exact(values: list[int]) -> None:
    moments = of_ints(values)
    assert moments.total == sum(values)
    assert moments.mean() == rounded(Fraction(sum(values), len(values)))
    assert moments.stddev() == statistics.pstdev(map(Fraction, values))
    assert moments.variance() == rounded(statistics.pvariance(map(Fraction, values)))


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1), st.sampled_from([1, 100, 10**6]))
def test_a_unit_divides_before_the_rounding(values: list[int], unit: int) -> None:
    decimals = [Fraction(value, unit) for value in values]
    assert of_ints(values).mean(unit) == rounded(sum(decimals) / len(decimals))
    assert of_ints(values).stddev(unit) == statistics.pstdev(decimals)
    assert of_ints(values).variance(unit) == rounded(statistics.pvariance(decimals))


@given(st.lists(any_float, min_size=1))
def test_infinities_and_nan_are_those_of_plain_addition(values: list[float]) -> None:
    special = [value for value in values if not math.isfinite(value)]
    if special:
        assert repr(of(values).sum()) == repr(sum(special)).replace("-nan", "nan")
        assert repr(of(values).mean()) == repr(of(values).sum())
        assert math.isnan(of(values).stddev())
        assert math.isnan(of(values).variance())


@given(st.lists(any_float), st.lists(any_float), st.randoms(use_true_random=False))
def test_merging_is_adding_in_any_order(left: list[float], right: list[float], order: object) -> None:
    merged = of(left)
    merged.merge(of(right))
    together = [*left, *right]
    order.shuffle(together)  # type: ignore[attr-defined]
    assert merged.pack() == of(together).pack()


@given(st.lists(any_float), st.lists(any_float))
def test_what_is_subtracted_leaves_no_residue(kept: list[float], gone: list[float]) -> None:
    moments = of([*kept, *gone])
    moments.subtract(of(gone))
    assert moments.pack() == of(kept).pack()


@given(st.lists(any_float), st.lists(any_float))
def test_packed_moments_merge_as_they_are(left: list[float], right: list[float]) -> None:
    packed = of(left).pack()
    assert Moments.unpack(packed).pack() == packed
    merged = of(right)
    merged.merge_packed([packed])
    assert merged.pack() == of([*left, *right]).pack()


def test_few_decimals_pack_small() -> None:
    assert of([0.5, 0.25, 1000.0]).pack() == [3, -2, 4003, 4 + 1 + 4000 * 4000]


@given(st.lists(st.floats()), st.booleans())
def test_floats_one_by_one_are_floats_at_once(values: list[float], squares: bool) -> None:
    at_once, single, restored = Moments(), Moments(), Moments()
    at_once.add_floats(values, squares=squares)
    for value in values:
        single.add_float(value, squares=squares)
    restored.restore(at_once.pack())
    assert at_once.pack() == single.pack() == restored.pack()
