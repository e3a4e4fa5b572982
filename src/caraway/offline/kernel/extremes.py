"""The least and greatest values of intervals of a column, for millions of intervals at once.

A column has levels: each value of a level is the extreme of eight adjacent values of the level below. So an interval is
made of at most fourteen values of each level, seven at either end.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

FACTOR = 8


class Extremes:
    """The least values of all intervals of a column of ints or floats without NaN; or the greatest ones."""

    def __init__(self, values: Numbers, *, greatest: bool) -> None:
        """Make the levels of a column."""
        self._pick = np.maximum if greatest else np.minimum
        self._nothing = worst(values.dtype, greatest=greatest)
        self._levels = [values]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            padded = np.full(-(-len(below) // FACTOR) * FACTOR, self._nothing, below.dtype)
            padded[: len(below)] = below
            self._levels.append(self._pick.reduce(padded.reshape(-1, FACTOR), axis=1))

    @property
    def nbytes(self) -> int:
        """The memory of all levels."""
        return sum(level.nbytes for level in self._levels)

    def between(self, first: Ints, last: Ints) -> Numbers:
        """Return the extremes of the intervals from `first` up to, not including, `last`.

        An interval without values has the value that no other is worse than, such as infinity for the least.
        """
        found = np.full(len(first), self._nothing, self._levels[0].dtype)
        begin, end = first.copy(), np.maximum(last, first)
        for level in self._levels:
            if not len(level):
                break
            for _ in range(FACTOR - 1):
                # The interval loses its first value until it begins with a whole group of eight, and its last value
                # until it ends with one.
                at_begin = (begin < end) & (begin % FACTOR != 0)
                self._add(found, level, begin, at_begin)
                begin += at_begin
                at_end = (begin < end) & (end % FACTOR != 0)
                end -= at_end
                self._add(found, level, end, at_end)
            begin, end = begin // FACTOR, end // FACTOR
        return found

    def _add(self, found: Numbers, level: Numbers, at: Ints, chosen: npt.NDArray[np.bool_]) -> None:
        places = np.flatnonzero(chosen)
        if len(places):
            found[places] = self._pick(found[places], level[at[places]])


def worst(dtype: np.dtype[Any], *, greatest: bool) -> Any:
    """Return the value of a type that no other is worse than, as a least or greatest value."""
    if dtype.kind == "f":
        return -np.inf if greatest else np.inf
    bounds = np.iinfo(dtype)
    return bounds.min if greatest else bounds.max
