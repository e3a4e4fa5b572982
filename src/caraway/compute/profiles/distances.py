"""The distances between two profiles of a column, each with a lower bound that chance and sketches don't explain.

Each function returns the distance as it is estimated, and `at_least`: if both profiles are samples of the same
distribution, it is above zero with a probability of at most `doubt`. The bounds of sketches are such that this holds
for all of them as well (docs/guides/monitoring.md).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.intervals import distribution_margin, mean_margin, shares
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.sketches import FREQUENT_LG_K, Sketch, frequent

Floats = npt.NDArray[np.float64]

# The bins of a column of numbers are tenths of the reference: these shares of the reference's values lie below the
# edges.
TENTHS = np.linspace(0.1, 0.9, 9)
# At most this many categories, the most frequent ones of the reference, are bins of their own; all others are one bin.
BINS = 20
# Distribution functions are compared at the quantiles that divide the values of each profile into this many equal
# parts.
PLACES = 256
# At most this many names of categories are shown.
SHOWN = 5


class Distance(StrEnum):
    """The kinds of distances."""

    PSI = "psi"
    KS = "ks"
    MEAN = "mean"
    MISSING = "missing"
    NEW = "new category"
    VANISHED = "vanished category"


@dataclass(frozen=True, slots=True)
class Measured:
    """A distance.

    Attributes:
        value: The distance of the two samples, about.
        at_least: The distance of what they are samples of is at least this; 0: chance may explain all of it.
        note: The change in words; empty if the number says it.
    """

    value: float
    at_least: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Shares:
    """The shares of bins in a sample, and the bounds of the shares of what it is a sample of."""

    seen: Floats
    low: Floats
    high: Floats


def psi(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the population stability index, the sum of `(p - q) * ln(p / q)` over bins.

    The lower bound is the index of the shares within their intervals that are the closest to each other. All intervals
    hold with a probability of 1 - `doubt`.
    """
    if reference.values == 0 or current.values == 0:
        return None
    bins = _number_bins if reference.kind is Kind.NUMBER else _category_bins
    was, now = bins(reference, current)
    each = doubt / (2 * len(was[0]))
    old, new = (_shares_of(column, *found, each) for column, found in ((reference, was), (current, now)))
    value = float(np.sum((new.seen - old.seen) * np.log(new.seen / old.seen)))
    apart = np.maximum(np.maximum(new.low - old.high, old.low - new.high), 0.0)
    more = new.low > old.high
    p, q = np.where(more, new.low, new.high), np.where(more, old.high, old.low)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(apart > 0, (p - q) * np.log(p / q), 0.0)
    return Measured(value, float(terms.sum()))


def _shares_of(column: ColumnProfile, counts: Floats, error: Floats, doubt: float) -> _Shares:
    rows = column.values
    seen = counts / rows
    low, high = shares(seen - error, seen + error, rows * column.worth, doubt)
    # Each bin gets half a row more than it has, since the index would be infinite for a bin without rows.
    smoothed = (np.maximum(counts, 0.0) + 0.5) / (rows + 0.5 * len(counts))
    return _Shares(smoothed, low, high)


Bins = tuple[Floats, Floats]


def _number_bins(reference: ColumnProfile, current: ColumnProfile) -> tuple[Bins, Bins]:
    """Return the counts of the bins of both profiles, with the greatest errors of the shares.

    Infinite values have a bin of their own.
    """
    if reference.quantiles.is_empty():
        edges = []
    else:
        edges = sorted(set(reference.quantiles.get_quantiles(TENTHS.tolist(), inclusive=True)))

    def counted(column: ColumnProfile) -> Bins:
        if edges and not column.quantiles.is_empty():
            masses = np.array(column.quantiles.get_pmf(edges, inclusive=True))
        else:
            masses = np.zeros(len(edges) + 1)
        finite = column.moments.count
        error = _rank_error(column.quantiles, two_sided=True) * finite / column.values
        return np.append(masses * finite, column.infinities), np.append(np.full(len(masses), error), 0.0)

    return counted(reference), counted(current)


def _category_bins(reference: ColumnProfile, current: ColumnProfile) -> tuple[Bins, Bins]:
    names = [text for text, _ in reference.top(BINS)]

    def counted(column: ColumnProfile) -> Bins:
        bounds = [(column.frequent.get_lower_bound(n), column.frequent.get_upper_bound(n)) for n in names]
        low, high = (np.array(side, np.float64) for side in (list(zip(*bounds, strict=True)) or [(), ()]))
        rest = max(column.values - float(low.sum()), 0.0), max(column.values - float(high.sum()), 0.0)
        low, high = np.append(low, rest[1]), np.append(high, rest[0])
        return (low + high) / 2, (high - low) / (2 * column.values)

    return counted(reference), counted(current)


def ks(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the greatest distance of the distribution functions of numbers (Kolmogorov-Smirnov).

    The distribution functions are compared at quantiles of both samples. The lower bound is less by the errors of both
    sketches and by the margins of both samples.
    """
    if reference.kind is not Kind.NUMBER or reference.quantiles.is_empty() or current.quantiles.is_empty():
        return None
    both = reference.quantiles, current.quantiles
    ranks = np.linspace(0.0, 1.0, PLACES + 1).tolist()
    places = sorted({place for sketch in both for place in sketch.get_quantiles(ranks, inclusive=True)})
    value = 0.0
    # The distribution functions jump where many values are equal, so they are compared at each place and just before
    # it.
    for inclusive in (True, False):
        old, new = (np.array(sketch.get_cdf(places, inclusive=inclusive)) for sketch in both)
        value = max(value, float(np.abs(old - new).max()))
    errors = sum(_rank_error(sketch, two_sided=True) for sketch in both)
    margins = sum(
        distribution_margin(column.moments.count * column.worth, doubt / 2) for column in (reference, current)
    )
    return Measured(value, max(value - errors - margins, 0.0))


def _rank_error(sketch: Sketch, *, two_sided: bool) -> float:
    # A sketch that still has all values has no error.
    return float(sketch.normalized_rank_error(two_sided)) if sketch.is_estimation_mode() else 0.0


def mean(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the shift of the mean, in standard deviations of the reference."""
    deviation = reference.stddev
    if reference.mean is None or current.mean is None or not deviation or not math.isfinite(deviation):
        return None
    shift = current.mean - reference.mean
    ends = [end for column in (reference, current) for end in (column.least, column.greatest) if end is not None]
    spread = max(ends) - min(ends)
    margins = sum(
        mean_margin(column.moments.variance(), spread, column.moments.count * column.worth, doubt / 2)
        for column in (reference, current)
    )
    if not math.isfinite(shift) or not math.isfinite(margins):
        margins = math.inf
    note = f"from {reference.mean:.6g} to {current.mean:.6g}"
    return Measured(abs(shift) / deviation, max((abs(shift) - margins) / deviation, 0.0), note)


def missing(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the change of the share of rows without a value."""
    if not reference.rows or not current.rows:
        return None
    seen, bounds = [], []
    for column in (reference, current):
        share = np.array([column.missing / column.rows])
        low, high = shares(share, share, column.rows * column.worth, doubt / 2)
        seen.append(float(share[0]))
        bounds.append((float(low[0]), float(high[0])))
    (old_low, old_high), (new_low, new_high) = bounds
    note = f"from {seen[0]:.2%} to {seen[1]:.2%}"
    return Measured(abs(seen[1] - seen[0]), max(new_low - old_high, old_low - new_high, 0.0), note)


def new_category(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the greatest share of a category that the reference hasn't got, as far as its sketch tells."""
    return _only_in(current, reference, doubt)


def vanished_category(reference: ColumnProfile, current: ColumnProfile, doubt: float) -> Measured | None:
    """Return the greatest share in the reference of a category that has vanished, as far as a sketch tells."""
    return _only_in(reference, current, doubt)


def _only_in(one: ColumnProfile, other: ColumnProfile, doubt: float) -> Measured | None:
    if one.kind is not Kind.CATEGORY or not one.values or not other.values:
        return None
    # The categories that are compared depend on the samples. So the probability of an error is divided among all
    # categories that a sketch may have: 2**FREQUENT_LG_K, each with two intervals.
    each = doubt / (2 << FREQUENT_LG_K)
    found = []
    for text, low, high in frequent(one.frequent):
        # A full sketch has dropped rare categories. So a category is treated as absent from the other sample if it may
        # be absent there: its lower bound is 0.
        if other.frequent.get_lower_bound(text) > 0:
            continue
        least, _ = shares(_array(low / one.values), _array(high / one.values), one.values * one.worth, each)
        rare = _array(other.frequent.get_upper_bound(text) / other.values)
        _, most = shares(rare, rare, other.values * other.worth, each)
        found.append((low / one.values, max(float(least[0] - most[0]), 0.0), text))
    if not found:
        return Measured(0.0, 0.0)
    found.sort(key=lambda item: (-item[1], -item[0], item[2]))
    names = ", ".join(f"{text!r} {share:.2%}" for share, _, text in found[:SHOWN])
    return Measured(found[0][0], found[0][1], names)


def _array(value: float) -> Floats:
    return np.array([value])


DISTANCES: Mapping[Distance, Callable[[ColumnProfile, ColumnProfile, float], Measured | None]] = {
    Distance.PSI: psi,
    Distance.KS: ks,
    Distance.MEAN: mean,
    Distance.MISSING: missing,
    Distance.NEW: new_category,
    Distance.VANISHED: vanished_category,
}
