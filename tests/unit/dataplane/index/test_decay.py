"""Decayed sums against fractions and powers of two."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from caraway.dataplane.index.aggregates.decay import NOTHING_LEFT, DecayedSum

SECOND = 1_000_000
HOUR = 3600 * SECOND

values = st.floats(-1e12, 1e12, allow_subnormal=False)
occurrences = st.lists(st.tuples(st.integers(-50 * HOUR, 50 * HOUR), values, st.just(b"")))


def sum_of(items: list[tuple[int, float, bytes]], half_life_us: int = HOUR) -> DecayedSum:
    made = DecayedSum(half_life_us)
    made.add(items)
    return made


def packed(decayed: DecayedSum) -> DecayedSum:
    read = DecayedSum(decayed.half_life_us)
    read.merge_packed(decayed.pack())
    return read


def truth(items: list[tuple[int, float, bytes]], at_us: int, half_life_us: int = HOUR) -> tuple[float, float]:
    """Return the sum, and the sum of the sizes of its terms."""
    terms = [
        Fraction(value) * Fraction(2.0 ** (-(at_us - time // SECOND * SECOND) / half_life_us))
        for time, value, _ in items
    ]
    return float(sum(terms)), float(sum(map(abs, terms)))


@given(occurrences, st.integers(0, 10 * HOUR))
def test_sums_are_those_of_the_definition(items: list[tuple[int, float, bytes]], later: int) -> None:
    at = max((time for time, _, _ in items), default=0) + later
    wanted, size = truth(items, at)
    found = packed(sum_of(items)).at(at)
    if abs(wanted) < NOTHING_LEFT * (1 - 1e-9):
        assert found == 0.0 or abs(found - wanted) <= 1e-12 * size
    else:
        assert abs(found - wanted) <= 1e-12 * size + (0.0 if found else NOTHING_LEFT * (1 + 1e-9))


@given(occurrences, st.randoms(use_true_random=False))
def test_order_and_partition_do_not_matter(items: list[tuple[int, float, bytes]], rng: object) -> None:
    whole = sum_of(items)
    rng.shuffle(items)  # type: ignore[attr-defined]
    half = len(items) // 2
    merged = sum_of(items[:half])
    merged.merge(sum_of(items[half:]))
    at = 51 * HOUR
    assert merged.at(at) == pytest.approx(whole.at(at), rel=1e-15, abs=1e-9 * NOTHING_LEFT)
    if not whole.cut and not merged.cut:
        assert packed(merged).pack() == whole.pack()


@given(occurrences, occurrences)
def test_what_is_taken_away_leaves_nothing(
    kept: list[tuple[int, float, bytes]], gone: list[tuple[int, float, bytes]]
) -> None:
    assume(kept)
    both = sum_of(kept + gone)
    if both.subtract(sum_of(gone), len(kept)):
        assert both.cut or sum_of(gone).cut or both.newest == sum_of(gone).newest
    else:
        assert both.pack() == sum_of(kept).pack()


def test_old_values_are_cut_off_beside_new_ones_and_found_anew() -> None:
    old, new = [(0, 3.0, b"")], [(1000 * HOUR, 5.0, b"")]
    both = sum_of(old + new)
    assert both.cut
    assert both.total.bit_length() < 300
    assert both.at(1000 * HOUR) == 5.0
    assert both.subtract(sum_of(new), 1)
    assert both.subtract(sum_of(old), 0) or both.at(0) == 0.0


def test_a_half_life_of_a_second_over_years_takes_no_room() -> None:
    decayed = sum_of([(n * 365 * 24 * HOUR, 1.5, b"") for n in range(-5, 6)], SECOND)
    assert len(decayed.pack()) < 60
    assert decayed.at(5 * 365 * 24 * HOUR) == 1.5


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan], math.nan),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([5e-324], 0.0),
        ([], 0.0),
    ],
)
def test_results_at_the_edges_of_floats(items: list[float], wanted: float) -> None:
    decayed = sum_of([(0, value, b"") for value in items])
    assert packed(decayed).at(0) == wanted or math.isnan(wanted)
    assert math.isnan(decayed.at(0)) == math.isnan(wanted)


def test_infinities_leave_as_they_came() -> None:
    both = sum_of([(0, math.inf, b""), (0, 1.0, b"")])
    assert not both.subtract(sum_of([(0, math.inf, b"")]), 1)
    assert both.at(0) == 1.0


def test_nulls_and_half_seconds_do_not_count() -> None:
    decayed = DecayedSum(SECOND)
    decayed.add([(0, None, b""), (999_999, 4.0, b"")])
    assert decayed.at(SECOND) == 2.0


@given(st.integers(-50 * HOUR, 50 * HOUR), st.integers(0, HOUR))
def test_a_large_sum_does_not_overflow_on_the_way(time_us: int, later_us: int) -> None:
    """Check a fault that parity found: read within the half-life, 1e308 was infinite."""
    at_us = time_us + later_us
    wanted, _ = truth([(time_us, 1e308, b"")], at_us)
    assert sum_of([(time_us, 1e308, b"")]).at(at_us) == pytest.approx(wanted, rel=1e-12)
