"""Aggregates over continuous windows at millions of times, from columns of all aggregate inputs.

The rows in a window at a time are an interval of the sorted rows of a group. So counts, sums, moments and extremes of
all windows are those of intervals (`caraway.offline.kernel.exact_sums`, `caraway.offline.kernel.extremes`).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dtypes.types import DataType
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.windows import ContinuousWindow
from caraway.index.aggregates.columns import Family, decimal_text, family_of
from caraway.index.aggregates.layout import Layout, reads_values
from caraway.index.aggregates.results import Result, results_of
from caraway.index.storage.intervals import WINDOW_REST_US
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


class NumberColumn:
    """A column of numbers, one for each row of a history; the values of its intervals of rows.

    Decimals are ints of their smallest units, of which `unit` make the number one.
    """

    def __init__(self, dtype: DataType, values: pl.Series) -> None:
        """Take the values of a column of a type, as `caraway.expr.polars.values.polars_type` has them.

        Raises `OverflowError` if a decimal has more units than 64 bits hold.
        """
        self.family, self.unit = family_of(dtype)
        self._before = _counted(values.is_not_null().to_numpy())
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

    @cached_property
    def sums(self) -> ExactSums:
        """The prefix sums of the values."""
        return ExactSums(self._values, squares=False)

    @cached_property
    def squares(self) -> ExactSums:
        """The prefix sums of the values and of their squares."""
        return ExactSums(self._values, squares=True)

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
        return _counted(self._numbers)

    @cached_property
    def _least(self) -> Extremes:
        return Extremes(self._values[self._numbers], greatest=False)

    @cached_property
    def _greatest(self) -> Extremes:
        return Extremes(self._values[self._numbers], greatest=True)


class WindowHistory:
    """The aggregate inputs of an index, none of which ends, in order; and aggregates over windows of them."""

    def __init__(self, plan: IndexPlan, timeline: Timeline, columns: Mapping[str, NumberColumn]) -> None:
        """Take sorted rows, and the columns of which `read` needs the values."""
        layout = Layout(plan, 0)
        self._timeline = timeline
        self._columns = columns
        self._results = results_of(plan, layout)
        self._empty = layout.empty()

    def unseen(self, name: str) -> object:
        """Return the value of an aggregate for a key that was never seen, in stored form."""
        return self._results[name].unseen

    def read(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[list[object]], Flags]:
        """Return aggregates of groups as of times, in stored form, and which groups had any row by then.

        A group that had none has the value of a key that was never seen. All aggregates must be `is_computable`.
        """
        last = self._timeline.up_to(groups, at_us)
        found: Flags = last > self._timeline.begins[groups]
        firsts: dict[int | None, Ints] = {}
        columns = []
        for name in names:
            result = self._results[name]
            length_us = result.spec.window_us
            if length_us not in firsts:
                firsts[length_us] = (
                    self._timeline.begins[groups]
                    if length_us is None
                    else self._timeline.up_to(groups, at_us - (length_us + WINDOW_REST_US))
                )
            values = self._values(result, firsts[length_us], last)
            for place in np.flatnonzero(~found).tolist():
                values[place] = result.unseen
            columns.append(values)
        return columns, found

    def _values(self, result: Result, first: Ints, last: Ints) -> list[object]:
        """Return the values of an aggregate of intervals of rows."""
        spec = result.spec
        if not reads_values(spec):
            return list((last - first).tolist())
        column = self._columns[spec.of or ""]
        first, last = column.between(first, last)
        if spec.function is FUNCTION.COUNT:
            return list((last - first).tolist())
        # The value of an empty window is the one that the index computes.
        empty = None if result.finish is None else result.finish(self._empty, 0)
        values: list[object] = [empty] * len(first)
        places = np.flatnonzero(first < last)
        computed = _computed(spec, column, first[places], last[places])
        for place, value in zip(places.tolist(), computed, strict=True):
            values[place] = value
        return values


def is_computable(plan: IndexPlan, spec: AggregateSpec) -> bool:
    """Return whether an aggregate of a plan can be computed from counts, sums and extremes of intervals of rows."""
    if plan.kind is not IndexKind.AGGREGATE or not isinstance(spec.window, ContinuousWindow):
        return False
    return (spec.function is FUNCTION.COUNT and not spec.unique) or spec.function in _OF_NUMBERS


def _computed(spec: AggregateSpec, column: NumberColumn, first: Ints, last: Ints) -> list[object]:
    """Return the values of an aggregate of intervals of values, none of them empty."""
    match spec.function:
        case FUNCTION.AVERAGE:
            return list(column.sums.means(first, last, column.unit).tolist())
        case FUNCTION.VARIANCE:
            return list(column.squares.variances(first, last, column.unit).tolist())
        case FUNCTION.STDDEV:
            return list(column.squares.stddevs(first, last, column.unit).tolist())
        case FUNCTION.SUM if column.family is Family.FLOAT:
            return list(column.sums.sums(first, last).tolist())
        case FUNCTION.SUM:
            totals = [moments.total for moments in column.sums.moments(first, last)]
            if column.family is Family.DECIMAL:
                return [decimal_text(total, column.unit) for total in totals]
            return [total if INT64_MIN <= total <= INT64_MAX else None for total in totals]
        case _:
            values = column.extremes(first, last, greatest=spec.function is FUNCTION.MAX).tolist()
            if column.family is Family.DECIMAL:
                return [decimal_text(value, column.unit) for value in values]
            return list(values)


def _units(values: pl.Series) -> Ints:
    """Return decimals as ints of their smallest units. Raises `OverflowError` if one doesn't fit into 64 bits."""
    try:
        return values.cast(pl.Int64).to_numpy()
    except pl.exceptions.InvalidOperationError as error:
        raise OverflowError("a decimal has more units than 64 bits hold") from error


def _counted(found: Flags) -> Ints:
    """Return how many of the flags before each position are set, and the number of all set ones."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(found, dtype=np.int64)])
