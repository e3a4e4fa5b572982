"""Rows of an index in order, and the values of intervals of them; they are in memory, or in blocks on the disk."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from caraway.dataplane.index.aggregates.columns import Family
from caraway.process.exact_sums import Moments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SortedTimes(Protocol):
    """The places of groups and times among sorted rows; see `caraway.offline.kernel.timeline.Timeline`."""

    begins: Ints

    def up_to(self, groups: Ints, times: Ints) -> Ints:
        """Return the position behind a group's last row at or before a time."""
        ...


class Sums(Protocol):
    """The sums of intervals of a column; see `caraway.offline.kernel.exact_sums.ExactSums`."""

    def moments(self, first: Ints, last: Ints) -> Sequence[Moments]:
        """Return the moments of intervals."""
        ...

    def sums(self, first: Ints, last: Ints) -> Floats:
        """Return the sums of intervals."""
        ...

    def means(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the means of intervals that aren't empty."""
        ...

    def variances(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the population variances of intervals that aren't empty."""
        ...

    def stddevs(self, first: Ints, last: Ints, unit: int = 1) -> Floats:
        """Return the population standard deviations of intervals that aren't empty."""
        ...


class NumberIntervals(Protocol):
    """A column of numbers, one for each row; decimals are ints of their smallest units, `unit` of which make one."""

    family: Family
    unit: int

    def between(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return the intervals of values, which lack the rows that are null, that belong to intervals of rows."""
        ...

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many values count in intervals of values."""
        ...

    @property
    def sums(self) -> Sums:
        """The sums of intervals of values."""
        ...

    @property
    def squares(self) -> Sums:
        """The sums of intervals of values and of their squares."""
        ...

    def extremes(self, first: Ints, last: Ints, *, greatest: bool) -> npt.NDArray[Any]:
        """Return the extremes of intervals of values that aren't empty; NaN is greater than all numbers."""
        ...


class SortedRows(Protocol):
    """Rows in order, from which the values of intervals are computed."""

    @property
    def timeline(self) -> SortedTimes:
        """The groups and times of the rows."""
        ...

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many rows count in intervals."""
        ...

    def column(self, name: str) -> NumberIntervals:
        """Return a column. Raises `OverflowError` if a decimal has more units than 64 bits hold."""
        ...


class WindowInputs(Protocol):
    """The aggregate inputs of an index."""

    @property
    def overlap(self) -> bool:
        """True if inputs leave windows in another order than they entered them."""
        ...

    def begun(self) -> SortedRows:
        """Return the inputs in the order in which they enter windows."""
        ...

    def lived(self, length_us: int | None) -> SortedRows:
        """Return a row of weight 1 where an input enters windows of a length, and one of -1 where it leaves them."""
        ...
