"""Exact sums of intervals of a column, for millions of intervals at once.

A finite float is an integer times a power of two, so a column of floats is a column of integers with one common
exponent. These integers are wide: two floats may differ by hundreds of bits. Each is therefore kept as *limbs*, signed
numbers of some 32 bits, limb k standing for multiples of 2**(32 * k). Sums of limbs don't carry, so numpy adds up each
limb by itself, in 64 bits. The sum of an interval is the difference of two prefix sums, limb by limb; only then the
limbs are put together, and the result is rounded once. So sums have the bits of those of the index
(`caraway.process.exact_sums`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from caraway.offline.kernel.rounding import BITS, LIMB, LIMB_BITS, MAX_DIVISOR, ratios, roots, spreads
from caraway.process.exact_sums import Moments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Objects = npt.NDArray[np.object_]
Flags = npt.NDArray[np.bool_]

# The parts of a float of 64 bits (IEEE 754): a sign, an exponent and a fraction of 52 bits.
FRACTION_BITS = 52
_FRACTION = (1 << FRACTION_BITS) - 1
_WITHOUT_SIGN = (1 << 63) - 1
# A float is its fraction, as an integer, times 2**(exponent - _BIAS).
_BIAS = 1075
PIECE_ROWS = 1 << 15
# Each row adds less than 2**36 to a limb, also if several parts of a square add to it. So limbs of up to 2**26 rows can
# be added up in 64 bits.
MAX_ROWS = 1 << 26
# If the values of a column are further apart than this, most limbs of most rows would be zero, and the integers are
# added up one by one instead.
MAX_BITS = 512


# The sums of all prefixes of a column of integers: limbs as rows of a matrix, or integers of any size.
Prefixes = Ints | Objects
# The names of prefix sums. Only those of infinities and NaN have other names, which are attributes of `Moments`.
TOTALS, SQUARES, COUNTS = "totals", "squares", "counts"


class ExactSums:
    """The prefix sums of a column of ints or floats, and of its squares if wanted.

    A value may count once or minus once, so that one that enters an interval and leaves it again counts for nothing.
    """

    def __init__(
        self,
        values: Floats | Ints,
        *,
        squares: bool,
        weights: Ints | None = None,
        shifts: tuple[int, int] | None = None,
    ) -> None:
        """Sum up the values. Raises `ValueError` if there are more than `MAX_ROWS`.

        Args:
            values: The column.
            squares: True: sum up the squares, too.
            weights: 1, 0 or -1 for each value; None: all count once.
            shifts: The least and the greatest exponent of all columns whose sums are to be added (`shifts_of`); None:
                those of this column.
        """
        if len(values) > MAX_ROWS:
            raise ValueError(f"{len(values)} rows are too many at once, {MAX_ROWS} at most")
        self._exponent = 0
        self._special: dict[str, Ints] = {}
        self._totals: Prefixes
        self._squares: Prefixes | None = None
        self._weights = weights
        self._counts = None if weights is None else _summed(weights)
        if values.dtype.kind == "f":
            values = self._without_special(values.astype(np.float64, copy=False))
        least, greatest = _shifts(values) if shifts is None else shifts
        self._exponent = least
        if greatest - least > MAX_BITS:
            parts = (side.tolist() for side in _parts(values, least))
            integers = [(-m if negative else m) << shift for m, shift, negative in zip(*parts, strict=True)]
            counted = [1] * len(integers) if weights is None else weights.tolist()
            self._totals = _of_integers([w * number for w, number in zip(counted, integers, strict=True)])
            if squares:
                self._squares = _of_integers([w * number * number for w, number in zip(counted, integers, strict=True)])
            return
        # With `shifts`, the sums are to be added to those of other columns. Then limbs that are always zero are stored,
        # too, so that all columns have the same limbs.
        every, spread = shifts is not None, greatest - least
        self._totals = _limbs_of(values, least, spread, square=False, weights=weights, every=every)
        if squares:
            self._squares = _limbs_of(values, least, spread, square=True, weights=weights, every=every)

    @classmethod
    def of(cls, exponent: int, prefixes: Mapping[str, Prefixes]) -> Self:
        """Return the sums of a column from its prefix sums by name, as `prefixes` returns them, and its exponent."""
        made = cls(np.zeros(0, np.int64), squares=False)
        made._exponent = exponent
        left = dict(prefixes)
        made._totals, made._squares = left.pop(TOTALS), left.pop(SQUARES, None)
        counts = left.pop(COUNTS, None)
        made._counts = None if counts is None else counts.astype(np.int64, copy=False)
        made._special = {name: prefix.astype(np.int64, copy=False) for name, prefix in left.items()}
        return made

    def prefixes(self) -> dict[str, Prefixes]:
        """Return all prefix sums by name; their last axis has the positions of the column."""
        found: dict[str, Prefixes] = {TOTALS: self._totals, **self._special}
        found |= {} if self._squares is None else {SQUARES: self._squares}
        return found | ({} if self._counts is None else {COUNTS: self._counts})

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many values count in the intervals of rows from `first` up to, not including, `last`."""
        return last - first if self._counts is None else self._counts[last] - self._counts[first]

    def moments(self, first: Ints, last: Ints) -> list[Moments]:
        """Return the moments of the intervals of rows from `first` up to, not including, `last`."""
        totals = _integers(self._totals, first, last)
        squares = [0] * len(totals) if self._squares is None else _integers(self._squares, first, last)
        found = []
        for count, total, square in zip(self.counts(first, last).tolist(), totals, squares, strict=True):
            moments = Moments()
            moments.count, moments.exponent, moments.total, moments.squares = count, self._exponent, total, square
            found.append(moments)
        for name, prefix in self._special.items():
            for moments, times in zip(found, (prefix[last] - prefix[first]).tolist(), strict=True):
                setattr(moments, name, times)
        return found

    def sums(self, first: Ints, last: Ints) -> Floats:
        """Return the sums of intervals as floats, each rounded once; see `Moments.sum`."""
        return self._each(first, last, np.ones(len(first), np.int64), 1, Moments.sum)

    def means(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the means of intervals that aren't empty, each rounded once; see `Moments.mean`."""
        return self._each(first, last, self.counts(first, last) * unit, 1, lambda moments: moments.mean(unit))

    def variances(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the population variances of intervals that aren't empty, each rounded once; see `Moments.variance`."""
        return self._each(first, last, self.counts(first, last) * unit, 2, lambda moments: moments.variance(unit))

    def stddevs(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the population standard deviations of intervals that aren't empty; see `Moments.stddev`."""
        return self._each(first, last, self.counts(first, last) * unit, 2, lambda m: m.stddev(unit), root=True)

    def _each(
        self,
        first: Ints,
        last: Ints,
        divisors: Ints,
        times: int,
        exactly: Callable[[Moments], float],
        *,
        root: bool = False,
    ) -> Floats:
        """Return the sums by the divisors, or with `times` of 2 the spreads by the squares of the divisors, or `root`s.

        Intervals for which limbs aren't enough, such as those with an infinity, are computed one by one by `exactly`.
        """
        if self._totals.dtype == object or int(divisors.max(initial=0)) > MAX_DIVISOR:
            return np.array([exactly(moments) for moments in self.moments(first, last)], np.float64)
        sums = _limbs(self._totals, first, last)
        if times == 2 and self._squares is not None:
            sums = spreads(self.counts(first, last), sums, _limbs(self._squares, first, last))
        if root:
            found, right = roots(sums, divisors, times * self._exponent)
        else:
            found, right = ratios(sums, divisors, times * self._exponent, times)
        for prefix in self._special.values():
            right &= prefix[last] == prefix[first]
        left = np.flatnonzero(~right)
        if len(left):
            found[left] = [exactly(moments) for moments in self.moments(first[left], last[left])]
        return found

    def _without_special(self, values: Floats) -> Floats:
        """Count infinities and NaN apart, and return the values with zeros in their place."""
        finite = np.isfinite(values)
        if finite.all():
            return values
        kinds = {"infinities": values == np.inf, "negative_infinities": values == -np.inf, "nans": np.isnan(values)}
        weights = 1 if self._weights is None else self._weights
        self._special = {name: _summed(found * weights) for name, found in kinds.items() if found.any()}
        cleared: Floats = np.where(finite, values, 0.0)
        return cleared


def _limbs(prefixes: Prefixes, first: Ints, last: Ints) -> Ints:
    return np.asarray(prefixes[:, last] - prefixes[:, first], np.int64)


def _integers(prefixes: Prefixes, first: Ints, last: Ints) -> list[int]:
    """Return the sums of the intervals from `first` up to, not including, `last`."""
    if prefixes.dtype == object:
        return list(prefixes[last] - prefixes[first])
    total: Any = np.zeros(len(first), object)
    for limb in _limbs(prefixes, first, last)[::-1]:
        # Sums of limbs may be negative or above 32 bits; Python's integers carry.
        total = (total << LIMB_BITS) + limb.astype(object)
    return list(total)


def _summed(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _of_integers(integers: Sequence[int]) -> Prefixes:
    prefixes = np.empty(len(integers) + 1, object)
    prefixes[:] = list(accumulate(integers, initial=0))
    return prefixes


def shifts_of(values: Floats | Ints) -> tuple[int, int]:
    """Return the least and the greatest exponent of 2 by which the integers of a column are multiplied.

    Infinities and NaN, which are counted apart, have none.
    """
    return _shifts(np.where(np.isfinite(values), values, 0.0) if values.dtype.kind == "f" else values)


def _pieces(rows: int) -> Iterator[slice]:
    """Yield slices of `rows` rows, each of a size that the processor's cache holds."""
    for begin in range(0, rows, PIECE_ROWS):
        yield slice(begin, begin + PIECE_ROWS)


def _shifts(values: Floats | Ints) -> tuple[int, int]:
    """Return the least and the greatest exponent of 2 by which the integers of a column are multiplied."""
    if values.dtype.kind != "f":
        return 0, 0
    least, greatest = 0, 0
    for piece in _pieces(len(values)):
        bits = values[piece].view(np.int64) & _WITHOUT_SIGN
        shifts = np.maximum(bits >> FRACTION_BITS, 1)[bits != 0] - _BIAS
        if len(shifts):
            least, greatest = min(least, int(shifts.min())), max(greatest, int(shifts.max()))
    return least, greatest


def _parts(values: Floats | Ints, least: int) -> tuple[Unsigned, Ints, Flags]:
    """Return numbers as `magnitude * 2**(shift + least)`, and which are negative."""
    if values.dtype.kind != "f":
        # The magnitude of the least int is 2**63, which fits only into an unsigned int.
        negative = values < 0
        wrapped = values.view(np.uint64)
        return np.where(negative, ~wrapped + np.uint64(1), wrapped), np.zeros(len(values), np.int64), negative
    signed = values.view(np.int64)
    bits = signed & _WITHOUT_SIGN
    exponent = bits >> FRACTION_BITS
    # The integer of a float is its fraction of 52 bits with a one in front. Floats with the least exponent, 0, lack
    # that one.
    fraction = (bits & _FRACTION) | ((exponent != 0).astype(np.int64) << FRACTION_BITS)
    shift = np.where(bits != 0, np.maximum(exponent, 1) - (_BIAS + least), 0)
    return fraction.view(np.uint64), shift, signed < 0


def _limbs_of(
    values: Floats | Ints, least: int, spread: int, *, square: bool, weights: Ints | None, every: bool
) -> Ints:
    """Return the limbs of the prefix sums of numbers, or of their squares, which are multiples of `2**least`.

    If `every` is false, the highest limbs are left out if they are always zero.
    """
    most_bits = (2 * (spread + 64)) if square else spread + 64
    limbs = np.zeros((most_bits // LIMB_BITS + 3, len(values) + 1), np.int64)
    for piece in _pieces(len(values)):
        magnitude, shift, negative = _parts(values[piece], least)
        target = limbs[:, 1:][:, piece]
        for part, more in _squared(magnitude) if square else [(magnitude, 0)]:
            _add(target, part, (2 * shift if square else shift) + more)
        if not square:
            target[:, negative] *= -1
        if weights is not None:
            target *= weights[piece]
    if not every:
        limbs = limbs[used(limbs)]
    np.cumsum(limbs, axis=1, out=limbs)
    return limbs


def _squared(magnitude: Unsigned) -> list[tuple[Unsigned, int]]:
    """Return the squares of integers as sums of parts, each below 2**64 and with the bits by which it is shifted."""
    high, low = magnitude >> BITS, magnitude & LIMB
    # (high * 2**32 + low)**2 = high**2 * 2**64 + high * low * 2**33 + low**2
    return [(high * high, 2 * LIMB_BITS), (high * low, LIMB_BITS + 1), (low * low, 0)]


def _add(limbs: Ints, part: Unsigned, shift: Ints) -> None:
    """Add `part * 2**shift` to the limbs of integers."""
    place, offset = shift // LIMB_BITS, (shift % LIMB_BITS).astype(np.uint64)
    low, high = (part & LIMB) << offset, (part >> BITS) << offset
    pieces = [low & LIMB, (low >> BITS) + (high & LIMB), high >> BITS]
    for at in range(int(place.min(initial=0)), int(place.max(initial=0)) + 1):
        here = place == at
        for step, piece in enumerate(pieces):
            limbs[at + step] += np.where(here, piece, np.uint64(0)).view(np.int64)


def used(limbs: Prefixes) -> slice:
    """Return the limbs up to the last one that isn't always zero."""
    nonzero = np.flatnonzero(limbs.any(axis=1))
    return slice(0, int(nonzero[-1]) + 1 if len(nonzero) else 1)
