"""Aggregate inputs in memory, and the values of intervals of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dataplane.index.aggregates.columns import Family, family_of
from caraway.dataplane.index.storage.intervals import WINDOW_REST_US
from caraway.dtypes.types import DataType
from caraway.offline.history.intervals import NumberIntervals, SortedRows, WindowInputs
from caraway.offline.kernel.exact_sums import ExactSums
from caraway.offline.kernel.extremes import Extremes
from caraway.offline.kernel.timeline import Timeline

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The end time of an aggregate input that never ends.
NEVER = np.iinfo(np.int64).max


class NumberColumn(NumberIntervals):
    """A column of numbers, one for each row of a history; the values of its intervals of rows.

    Decimals are ints of their smallest units, of which `unit` make the number one.
    """

    def __init__(self, dtype: DataType, values: pl.Series, weights: Ints | None = None) -> None:
        """Take the values of a column of a type, as `caraway.expr.polars.values.polars_type` has them.

        `weights` are as in `ExactSums`; with weights there are no extremes.

        Raises `OverflowError` if a decimal has more units than 64 bits hold.
        """
        self.family, self.unit = family_of(dtype)
        known = values.is_not_null().to_numpy()
        self._before = _summed(known)
        self._weights = None if weights is None else weights[known]
        self._counts = None if self._weights is None else _summed(self._weights)
        self._values = numbers_of(self.family, values.drop_nulls())

    def between(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return the intervals of values, which lack the rows that are null, that belong to intervals of rows."""
        return self._before[first], self._before[last]

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many values count in intervals of values."""
        return last - first if self._counts is None else self._counts[last] - self._counts[first]

    @cached_property
    def sums(self) -> ExactSums:
        """The prefix sums of the values."""
        return ExactSums(self._values, squares=False, weights=self._weights)

    @cached_property
    def squares(self) -> ExactSums:
        """The prefix sums of the values and of their squares."""
        return ExactSums(self._values, squares=True, weights=self._weights)

    def extremes(self, first: Ints, last: Ints, *, greatest: bool) -> npt.NDArray[Any]:
        """Return the extremes of intervals of values that aren't empty; NaN is greater than all numbers."""
        before = self._numbers_before
        begin, end = before[first], before[last]
        found = (self._greatest if greatest else self._least).between(begin, end)
        if self.family is not Family.FLOAT:
            return found
        # NaN counts as greater than all numbers, so the least value is NaN only if all values are.
        is_nan = end - begin < last - first if greatest else begin == end
        # The result must not depend on the order of the equal values -0.0 and 0.0, so -0.0 becomes 0.0.
        return np.where(is_nan, np.nan, found + 0.0)

    @cached_property
    def _numbers(self) -> Flags:
        return ~np.isnan(self._values) if self.family is Family.FLOAT else np.ones(len(self._values), np.bool_)

    @cached_property
    def _numbers_before(self) -> Ints:
        return _summed(self._numbers)

    @cached_property
    def _least(self) -> Extremes:
        return Extremes(self._values[self._numbers], greatest=False)

    @cached_property
    def _greatest(self) -> Extremes:
        return Extremes(self._values[self._numbers], greatest=True)


@dataclass(frozen=True, slots=True)
class AggregateInputs(WindowInputs):
    """All aggregate inputs of an index, as columns of one length.

    Attributes:
        groups: The number of each input's group, from 0 on.
        count: The number of groups.
        times: The event times.
        ends: The times from which on an input counts no more, each after its own time; NEVER for one that doesn't end.
            None if no input ends.
        seen: The times from which on an input counts, if that is later than its own time; None if all count at once.
        values: The columns that aggregates read, with their types.
    """

    groups: Ints
    count: int
    times: Ints
    ends: Ints | None
    seen: Ints | None
    values: Mapping[str, tuple[DataType, pl.Series]]

    @property
    def enters(self) -> Ints:
        """The times at which inputs enter windows."""
        return self.times if self.seen is None else np.maximum(self.times, self.seen)

    @property
    def overlap(self) -> bool:
        """True if inputs leave windows in another order than they entered them."""
        return self.ends is not None or self.seen is not None

    def begun(self) -> SortedRows:
        """Return the inputs in the order in which they enter windows."""
        timeline = Timeline(self.groups, self.enters, self.count)
        return _Sorted(self.values, timeline, timeline.places)

    def lived(self, length_us: int | None) -> SortedRows:
        """Return a row of weight 1 where an input enters windows of a length, and one of -1 where it leaves them."""
        rows, weights, times = lives(self.enters, self.times, self.ends, length_us)
        timeline = Timeline(self.groups[rows], times, self.count)
        return _Sorted(self.values, timeline, rows[timeline.places], weights[timeline.places])


class _Sorted(SortedRows):
    """Rows in order, from which the values of intervals are computed."""

    def __init__(
        self,
        values: Mapping[str, tuple[DataType, pl.Series]],
        timeline: Timeline,
        rows: Ints,
        weights: Ints | None = None,
    ) -> None:
        """Take the rows of a timeline, each of which has the values of an input, `rows`, and counts by its weight."""
        self._timeline = timeline
        self._values = values
        self._rows = rows
        self._weights = weights
        self._counts = None if weights is None else _summed(weights)
        self._columns: dict[str, NumberColumn] = {}

    @property
    def timeline(self) -> Timeline:
        """The groups and times of the rows."""
        return self._timeline

    def counts(self, first: Ints, last: Ints) -> Ints:
        """Return how many rows count in intervals."""
        return last - first if self._counts is None else self._counts[last] - self._counts[first]

    def column(self, name: str) -> NumberColumn:
        """Return a column. Raises `OverflowError` as `NumberColumn` does."""
        found = self._columns.get(name)
        if found is None:
            dtype, values = self._values[name]
            found = self._columns[name] = NumberColumn(dtype, values.gather(self._rows), self._weights)
        return found


def lives(enters: Ints, times: Ints, ends: Ints | None, length_us: int | None) -> tuple[Ints, Ints, Ints]:
    """Return a row of weight 1 where an input enters windows of a length, and one of -1 where it leaves them.

    Args:
        enters: The times at which inputs enter windows.
        times: Their event times.
        ends: The times from which on they count no more, if any does.
        length_us: The length of the windows; None if they go back forever.

    Returns:
        For each row the number of its input, its weight of 1 or -1, and its time.
    """
    leaves = np.full(len(enters), NEVER) if ends is None else ends
    if length_us is not None:
        # This sum can't overflow: times are bounded by those that the index can hold, far from the ends of 64 bits.
        leaves = np.minimum(leaves, times + (length_us + WINDOW_REST_US))
    # An input may become known only after the time at which it leaves its windows. Such an input is in no window.
    entered = np.flatnonzero(enters < leaves)
    left = entered[leaves[entered] < NEVER]
    weights = np.ones(len(entered) + len(left), np.int64)
    weights[len(entered) :] = -1
    return np.concatenate([entered, left]), weights, np.concatenate([enters[entered], leaves[left]])


def numbers_of(family: Family, values: pl.Series) -> npt.NDArray[Any]:
    """Return values without nulls as numbers; those that are only counted have none.

    Raises `OverflowError` if a decimal has more units than 64 bits hold.
    """
    match family:
        case Family.FLOAT:
            return values.cast(pl.Float64).to_numpy()
        case Family.INT:
            return values.to_physical().cast(pl.Int64).to_numpy()
        case Family.DECIMAL:
            return _units(values.to_physical())
        case Family.ANY:
            return np.zeros(0, np.int64)


def _units(values: pl.Series) -> Ints:
    """Return decimals as ints of their smallest units. Raises `OverflowError` if one doesn't fit into 64 bits."""
    try:
        return values.cast(pl.Int64).to_numpy()
    except pl.exceptions.InvalidOperationError as error:
        raise OverflowError("a decimal has more units than 64 bits hold") from error


def _summed(counts: Ints | Flags) -> Ints:
    """Return the sum of all counts before each position, and the sum of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
