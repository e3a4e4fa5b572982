"""Aggregates over continuous windows at millions of times, from columns of all aggregate inputs.

The rows in a window at a time are an interval of the sorted rows of a group. So counts, sums, moments and extremes of
all windows are those of intervals (`caraway.offline.kernel.exact_sums`, `caraway.offline.kernel.extremes`).

If aggregate inputs end, as those of a keyed dataset do when a newer version replaces one, windows are no intervals. But
counts, sums and moments of a window are still those of all inputs that have entered it, less those of all that have
left it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dtypes.types import DataType
from caraway.expr.polars.values import polars_type, to_polars
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.windows import ContinuousWindow
from caraway.index.aggregates.columns import Family, decimal_text, family_of
from caraway.index.aggregates.layout import Layout, reads_values
from caraway.index.aggregates.results import Result, results_of
from caraway.index.storage.intervals import WINDOW_REST_US
from caraway.offline.columns import replaced
from caraway.offline.kernel.exact_sums import ExactSums
from caraway.offline.kernel.extremes import Extremes
from caraway.offline.kernel.timeline import Timeline
from caraway.plan.model import IndexKind, IndexPlan

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FUNCTION = AggregateFunction
# The functions of numbers that can be computed from sums or extremes of intervals.
_OF_NUMBERS = frozenset(
    {FUNCTION.SUM, FUNCTION.AVERAGE, FUNCTION.STDDEV, FUNCTION.VARIANCE, FUNCTION.MIN, FUNCTION.MAX}
)
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


# The end of an aggregate input that doesn't end.
NEVER = np.iinfo(np.int64).max


class NumberColumn:
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
        self._values: npt.NDArray[Any] = np.zeros(0, np.int64)
        present = values.drop_nulls()
        match self.family:
            case Family.FLOAT:
                self._values = present.cast(pl.Float64).to_numpy()
            case Family.INT:
                self._values = present.to_physical().cast(pl.Int64).to_numpy()
            case Family.DECIMAL:
                self._values = _units(present.to_physical())
            case Family.ANY:
                # Such values are only counted.
                pass

    def between(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return the intervals of values that are in intervals of rows."""
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
        # The least value is NaN only if all values are.
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
class AggregateInputs:
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


class _Sorted:
    """Rows in order, from which the values of intervals are computed."""

    def __init__(
        self,
        values: Mapping[str, tuple[DataType, pl.Series]],
        timeline: Timeline,
        rows: Ints,
        weights: Ints | None = None,
    ) -> None:
        """Take the rows of a timeline, each of which has the values of an input, `rows`, and counts by its weight."""
        self.timeline = timeline
        self._values = values
        self._rows = rows
        self._weights = weights
        self._counts = None if weights is None else _summed(weights)
        self._columns: dict[str, NumberColumn] = {}

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


class WindowHistory:
    """Aggregates over continuous windows of all inputs of an index."""

    def __init__(self, plan: IndexPlan, inputs: AggregateInputs) -> None:
        """Sort the inputs."""
        layout = Layout(plan, 0)
        timeline = Timeline(inputs.groups, inputs.enters, inputs.count)
        self._inputs = inputs
        self._begun = _Sorted(inputs.values, timeline, timeline.places)
        self._lived: dict[int | None, _Sorted] = {}
        self._results = results_of(plan, layout)
        self._empty = layout.empty()

    def unseen(self, name: str) -> object:
        """Return the value of an aggregate for a key that was never seen, in stored form."""
        return self._results[name].unseen

    def dtype(self, name: str) -> DataType:
        """Return the type of an aggregate."""
        return self._results[name].spec.dtype

    def read(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[pl.Series], Flags]:
        """Return aggregates of groups as of times, and which groups had any row by then.

        A group that had none has the value of a key that was never seen. All aggregates must be `is_computable`.

        Raises `OverflowError` if a decimal has more units than 64 bits hold.
        """
        timeline = self._begun.timeline
        begun = timeline.up_to(groups, at_us)
        found: Flags = begun > timeline.begins[groups]
        intervals: dict[int | None, tuple[_Sorted, Ints, Ints]] = {}
        columns = []
        for name in names:
            result = self._results[name]
            length_us = result.spec.window_us
            if length_us not in intervals:
                intervals[length_us] = self._interval(length_us, groups, at_us, begun)
            values = self._values(result, *intervals[length_us])
            columns.append(replaced(values, pl.Series(found), result.unseen, result.spec.dtype))
        return columns, found

    def _interval(self, length_us: int | None, groups: Ints, at_us: Ints, begun: Ints) -> tuple[_Sorted, Ints, Ints]:
        """Return the rows that make windows of a length, and the interval of each window among them."""
        if self._inputs.ends is not None or self._inputs.seen is not None:
            lived = self._lived.get(length_us)
            if lived is None:
                lived = self._lived[length_us] = _lives(self._inputs, length_us)
            return lived, lived.timeline.begins[groups], lived.timeline.up_to(groups, at_us)
        timeline = self._begun.timeline
        if length_us is None:
            return self._begun, timeline.begins[groups], begun
        return self._begun, timeline.up_to(groups, at_us - (length_us + WINDOW_REST_US)), begun

    def _values(self, result: Result, rows: _Sorted, first: Ints, last: Ints) -> pl.Series:
        """Return the values of an aggregate of intervals of rows."""
        spec = result.spec
        if not reads_values(spec):
            return pl.Series(rows.counts(first, last))
        column = rows.column(spec.of or "")
        first, last = column.between(first, last)
        counts = column.counts(first, last)
        if spec.function is FUNCTION.COUNT:
            return pl.Series(counts)
        there = counts > 0
        if there.all():
            return _computed(spec, column, first, last)
        # The value of an empty window is the one that the index computes.
        empty = None if result.finish is None else result.finish(self._empty, 0)
        computed = _computed(spec, column, first[there], last[there])
        kept = pl.Series(there)
        places = pl.Series(np.cumsum(there) - 1, dtype=pl.Int64).set(~kept, None)
        return replaced(computed.gather(places), kept, empty, spec.dtype)


def _lives(inputs: AggregateInputs, length_us: int | None) -> _Sorted:
    """Return a row for each input that enters windows of a length, and one that takes it back when it leaves."""
    enters = inputs.enters
    leaves = np.full(len(enters), NEVER) if inputs.ends is None else inputs.ends
    if length_us is not None:
        # Times are bounded by those that the index can hold, far from the ends of 64 bits.
        leaves = np.minimum(leaves, inputs.times + (length_us + WINDOW_REST_US))
    # An input that is seen only after it has left is in no window.
    entered = np.flatnonzero(enters < leaves)
    left = entered[leaves[entered] < NEVER]
    rows = np.concatenate([entered, left])
    weights = np.ones(len(rows), np.int64)
    weights[len(entered) :] = -1
    times = np.concatenate([enters[entered], leaves[left]])
    timeline = Timeline(inputs.groups[rows], times, inputs.count)
    return _Sorted(inputs.values, timeline, rows[timeline.places], weights[timeline.places])


def is_computable(plan: IndexPlan, spec: AggregateSpec) -> bool:
    """Return whether an aggregate of a plan can be computed from counts, sums and extremes of intervals of rows."""
    if plan.kind is not IndexKind.AGGREGATE or not isinstance(spec.window, ContinuousWindow):
        return False
    return (spec.function is FUNCTION.COUNT and not spec.unique) or spec.function in _OF_NUMBERS


def _computed(spec: AggregateSpec, column: NumberColumn, first: Ints, last: Ints) -> pl.Series:
    """Return the values of an aggregate of intervals of values, none of them empty."""
    match spec.function:
        case FUNCTION.AVERAGE:
            return pl.Series(column.sums.means(first, last, column.unit))
        case FUNCTION.VARIANCE:
            return pl.Series(column.squares.variances(first, last, column.unit))
        case FUNCTION.STDDEV:
            return pl.Series(column.squares.stddevs(first, last, column.unit))
        case FUNCTION.SUM if column.family is Family.FLOAT:
            return pl.Series(column.sums.sums(first, last))
        case FUNCTION.SUM:
            totals = [moments.total for moments in column.sums.moments(first, last)]
            if column.family is Family.DECIMAL:
                return _decimals(totals, column.unit, spec.dtype)
            return pl.Series([t if INT64_MIN <= t <= INT64_MAX else None for t in totals], dtype=pl.Int64)
        case _:
            values = column.extremes(first, last, greatest=spec.function is FUNCTION.MAX)
            if column.family is Family.DECIMAL:
                return _decimals(values.tolist(), column.unit, spec.dtype)
            return pl.Series(values).cast(polars_type(spec.dtype))


def _decimals(units: Sequence[int], unit: int, dtype: DataType) -> pl.Series:
    return to_polars("", [decimal_text(number, unit) for number in units], dtype)


def _units(values: pl.Series) -> Ints:
    """Return decimals as ints of their smallest units. Raises `OverflowError` if one doesn't fit into 64 bits."""
    try:
        return values.cast(pl.Int64).to_numpy()
    except pl.exceptions.InvalidOperationError as error:
        raise OverflowError("a decimal has more units than 64 bits hold") from error


def _summed(counts: Ints | Flags) -> Ints:
    """Return the sum of all counts before each position, and the sum of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
