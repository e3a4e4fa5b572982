"""Confidence intervals against the distributions for which they must hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.profiles.intervals import distribution_margin, mean_margin, shares


def at_least(successes: int, rows: int, share: float) -> float:
    """Return the probability of so many successes or more, computed exactly."""
    return sum(math.comb(rows, k) * share**k * (1 - share) ** (rows - k) for k in range(successes, rows + 1))


@given(st.integers(1, 60), st.data(), st.sampled_from([0.5, 0.05, 0.001]))
def test_shares_outside_an_interval_hardly_give_the_sample(rows: int, data: st.DataObject, doubt: float) -> None:
    successes = data.draw(st.integers(0, rows))
    share = np.array([successes / rows])
    low, high = (float(side[0]) for side in shares(share, share, rows, doubt))
    assert 0 <= low <= successes / rows <= high <= 1
    assert at_least(successes, rows, low) <= doubt / 2 + 1e-9 or low == 0
    assert at_least(rows - successes, rows, 1 - high) <= doubt / 2 + 1e-9 or high == 1


@given(st.floats(0, 1), st.floats(0, 0.1), st.integers(1, 10_000))
def test_the_error_of_a_sketch_makes_an_interval_wider(share: float, error: float, rows: int) -> None:
    exact, wide = np.array([share]), (np.array([share - error]), np.array([share + error]))
    assert shares(*wide, rows, 0.01)[0] <= shares(exact, exact, rows, 0.01)[0] + 1e-9
    assert shares(*wide, rows, 0.01)[1] >= shares(exact, exact, rows, 0.01)[1] - 1e-9


def test_nothing_is_known_from_no_rows() -> None:
    assert [side.tolist() for side in shares(np.zeros(1), np.zeros(1), 0, 0.1)] == [[0.0], [1.0]]
    assert distribution_margin(0, 0.1) == 1.0
    assert mean_margin(1.0, 1.0, 1, 0.1) == math.inf


@pytest.mark.parametrize("rows", [20, 500])
def test_distribution_functions_of_samples_leave_the_margin_as_seldom_as_stated(rows: int) -> None:
    chance, doubt, far = np.random.default_rng(rows), 0.1, 0
    for _ in range(1_000):
        sample = np.sort(chance.random(rows))
        steps = np.arange(rows + 1) / rows
        distance = max(np.abs(steps[1:] - sample).max(), np.abs(steps[:-1] - sample).max())
        far += bool(distance > distribution_margin(rows, doubt))
    # The expected number is at most 100, with a standard deviation of 9.5.
    assert 0 < far <= 140


@pytest.mark.parametrize("rows", [30, 1_000])
def test_means_of_samples_leave_the_margin_as_seldom_as_stated(rows: int) -> None:
    chance, doubt = np.random.default_rng(rows), 0.1
    samples = chance.random((1_000, rows)) ** 8
    margins = [mean_margin(float(sample.var()), 1.0, rows, doubt) for sample in samples]
    assert (np.abs(samples.mean(axis=1) - 1 / 9) > margins).sum() <= 140
