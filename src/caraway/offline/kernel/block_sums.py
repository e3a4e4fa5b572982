"""Counts, exact sums and extremes of intervals of rows that are in blocks on the disk.

A prefix sum at a position is that of the blocks before, plus that within the position's block. So what an interval
needs comes from the two blocks where it begins and ends; for an extreme, also from one value of each block between.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from caraway.offline.kernel.blocks import Blocks
from caraway.offline.kernel.exact_sums import SQUARES, TOTALS, ExactSums, Prefixes, shifts_of, used
from caraway.offline.kernel.extremes import Extremes, worst
from caraway.offline.kernel.rounding import LIMB, LIMB_BITS
from caraway.process.exact_sums import Moments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


class BlockCounts:
    """The prefix sums of small ints, one for each row."""

    def __init__(self, blocks: Blocks, counts: Callable[[int], Ints]) -> None:
        """Sum up what `counts` returns for the rows of each block."""
        self._blocks = blocks
        self._counts = counts
        totals = [int(counts(number).sum()) for number in range(len(blocks))]
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(totals, dtype=np.int64)])

    def between(self, first: Ints, last: Ints) -> Ints:
        """Return the sums of the rows from `first` up to, not including, `last`."""
        return self._at(last) - self._at(first)

    def _at(self, positions: Ints) -> Ints:
        found = np.zeros(len(positions), np.int64)
        for number, places, local in self._blocks.by_block(positions):
            sums = self._blocks.cache.get((self, number), partial(self._within, number), _size)
            found[places] = self._before[number] + sums[local]
        return found

    def _within(self, number: int) -> Ints:
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts(number), dtype=np.int64)])


class BlockSums:
    """The prefix sums of a column, and of its squares if wanted; see `ExactSums`."""

    def __init__(self, blocks: Blocks, column: Callable[[int], tuple[Numbers, Ints]], *, squares: bool) -> None:
        """Sum up a column.

        Args:
            blocks: The blocks.
            column: Returns the values of a block's rows, and their weights, which are 1, 0 or -1.
            squares: True: sum up the squares, too.
        """
        self._blocks = blocks
        self._column = column
        self._has_squares = squares
        shifts = [shifts_of(column(number)[0]) for number in range(len(blocks))]
        self._shifts = min((s[0] for s in shifts), default=0), max((s[1] for s in shifts), default=0)
        self._before: list[dict[str, Any]] = []
        before: dict[str, Any] = {}
        for number in range(len(blocks)):
            self._before.append(before)
            sums = {name: prefix[..., -1] + before.get(name, 0) for name, prefix in self._within(number).items()}
            before = before | {name: _carried(name, total) for name, total in sums.items()}

    def moments(self, first: Ints, last: Ints) -> list[Moments]:
        """Return the moments of intervals; see `ExactSums.moments`."""
        sums, first, last = self._around(first, last)
        return sums.moments(first, last)

    def sums(self, first: Ints, last: Ints) -> Floats:
        """Return the sums of intervals; see `ExactSums.sums`."""
        sums, first, last = self._around(first, last)
        return sums.sums(first, last)

    def means(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the means of intervals; see `ExactSums.means`."""
        sums, first, last = self._around(first, last)
        return sums.means(first, last, unit)

    def variances(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the variances of intervals; see `ExactSums.variances`."""
        sums, first, last = self._around(first, last)
        return sums.variances(first, last, unit)

    def stddevs(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the standard deviations of intervals; see `ExactSums.stddevs`."""
        sums, first, last = self._around(first, last)
        return sums.stddevs(first, last, unit)

    def _around(self, first: Ints, last: Ints) -> tuple[ExactSums, Ints, Ints]:
        """Return the prefix sums at the ends of intervals only, and the places of these ends among them."""
        asked, places = np.unique(np.concatenate([first, last]), return_inverse=True)
        found: dict[str, Prefixes] = {}
        for number, at, local in self._blocks.by_block(asked):
            before = self._before[number]
            within = self._within(number)
            for name in within.keys() | before.keys():
                prefix = within.get(name)
                base = before.get(name, 0)
                values = np.zeros(len(at), np.int64) if prefix is None else prefix[..., local]
                values = values + (base[:, None] if np.ndim(base) else base)
                into = found.setdefault(name, np.zeros((*values.shape[:-1], len(asked)), values.dtype))
                into[..., at] = values
        for name in (TOTALS, SQUARES):
            if name in found and found[name].ndim > 1:
                found[name] = found[name][used(found[name])]
        found.setdefault(TOTALS, np.zeros((1, len(asked)), np.int64))
        return ExactSums.of(self._shifts[0], found), places[: len(first)], places[len(first) :]

    def _within(self, number: int) -> dict[str, Prefixes]:
        def summed() -> dict[str, Prefixes]:
            values, weights = self._column(number)
            return ExactSums(values, squares=self._has_squares, weights=weights, shifts=self._shifts).prefixes()

        return self._blocks.cache.get((self, number), summed, lambda made: sum(_size(one) for one in made.values()))


class BlockExtremes:
    """The least values of intervals of a column, or the greatest ones; see `Extremes`."""

    def __init__(
        self, blocks: Blocks, values: Callable[[int], Numbers], dtype: np.dtype[Any], *, greatest: bool
    ) -> None:
        """Take what `values` returns for a block's rows: ints, or floats without NaN."""
        self._blocks = blocks
        self._values = values
        self._greatest = greatest
        self._dtype = dtype
        self._pick = np.maximum if greatest else np.minimum
        # The extreme value of each block. For a block that lies wholly in an interval, this value is enough.
        whole = [self._pick.reduce(values(number)) for number in range(len(blocks))]
        self._whole = Extremes(np.array(whole, dtype), greatest=greatest)

    def between(self, first: Ints, last: Ints) -> Numbers:
        """Return the extremes of the intervals from `first` up to, not including, `last`; see `Extremes.between`."""
        found = np.full(len(first), worst(self._dtype, greatest=self._greatest), self._dtype)
        rows = np.flatnonzero(first < last)
        if not len(rows):
            return found
        first, last = first[rows], last[rows]
        starts = self._blocks.starts
        begins = np.searchsorted(starts, first, side="right") - 1
        ends = np.searchsorted(starts, last - 1, side="right") - 1
        part = self._whole.between(begins + 1, ends)
        # The blocks at the two ends of an interval lie in it only in part, so the values of their rows are needed. Both
        # ends may be in one block.
        for numbers in (begins, ends):
            at = np.maximum(first, starts[numbers])
            for number, places, local in self._blocks.by_block(at):
                behind = np.minimum(last[places], starts[number + 1]) - starts[number]
                part[places] = self._pick(part[places], self._within(number).between(local, behind))
        found[rows] = part
        return found

    def _within(self, number: int) -> Extremes:
        return self._blocks.cache.get(
            (self, number),
            lambda: Extremes(self._values(number), greatest=self._greatest),
            lambda made: made.nbytes,
        )


def _size(values: Numbers) -> int:
    return values.nbytes


def _carried(name: str, total: Any) -> Any:
    """Return a sum with limbs below 2**32 but for the highest one, so that no limb of a later sum overflows."""
    if name not in {TOTALS, SQUARES} or not np.ndim(total):
        return total
    limbs = total.copy()
    for place in range(len(limbs) - 1):
        limbs[place + 1] += limbs[place] >> LIMB_BITS
        limbs[place] &= int(LIMB)
    return limbs
