"""Confidence intervals of shares and of means, and the distance of distribution functions that chance explains.

All bounds hold for samples of any size; none of them takes a distribution for granted. `doubt` is the probability with
which a statement may be wrong. A sample of rows that repeat the same keys counts as fewer rows, so the number of rows
needn't be whole.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The number of bisections. Each one halves the interval, so a share is known to 2**-40.
_STEPS = 40


def shares(low: Floats, high: Floats, rows: float, doubt: float) -> tuple[Floats, Floats]:
    """Return intervals of the true shares, of which each holds with a probability of 1 - `doubt`.

    They are those of the Chernoff bound (W. Hoeffding, "Probability inequalities for sums of bounded random
    variables", 1963, theorem 1), so they are narrow for shares near 0 and 1.

    Args:
        low: The least values that the shares of a sample may have, as far as a sketch tells.
        high: The greatest ones.
        rows: The size of the sample.
        doubt: The probability with which an interval may be wrong.
    """
    if rows <= 0:
        return np.zeros_like(low), np.ones_like(high)
    most = math.log(2 / doubt) / rows
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    return _end(low, np.zeros_like(low), most), _end(high, np.ones_like(high), most)


def _end(seen: Floats, outer: Floats, most: float) -> Floats:
    """Return the share between a share that was seen and `outer` whose divergence from the one seen is `most`."""
    near, far = seen.copy(), outer.copy()
    for _ in range(_STEPS):
        middle = (near + far) / 2
        within = _divergence(seen, middle) <= most
        near, far = np.where(within, middle, near), np.where(within, far, middle)
    return far


def _divergence(seen: Floats, true: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of two coins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        head = np.where(seen > 0, seen * np.log(seen / true), 0.0)
        tail = np.where(seen < 1, (1 - seen) * np.log((1 - seen) / (1 - true)), 0.0)
    return head + tail


def distribution_margin(rows: float, doubt: float) -> float:
    """Return how far the distribution function of a sample may be from the true one, everywhere.

    This is the inequality of Dvoretzky, Kiefer and Wolfowitz with the constant of P. Massart (1990).
    """
    return math.sqrt(math.log(2 / doubt) / (2 * rows)) if rows > 0 else 1.0


def mean_margin(variance: float, spread: float, rows: float, doubt: float) -> float:
    """Return how far the mean of a sample may be from the true one.

    This is the empirical Bernstein bound (A. Maurer and M. Pontil, 2009). It wants the range of all possible values;
    that of the values that were seen stands for it here.

    Args:
        variance: The variance of the sample.
        spread: The greatest value less the least one.
        rows: The size of the sample.
        doubt: The probability with which the bound may be wrong.
    """
    if rows <= 1:
        return math.inf
    logarithm = math.log(4 / doubt)
    return math.sqrt(2 * variance * logarithm / rows) + 7 * spread * logarithm / (3 * (rows - 1))
