"""Aggregates over continuous windows at millions of times, from columns of all aggregate inputs.

The rows in a window at a time are an interval of the sorted rows of a group. So counts, sums, moments and extremes of
all windows are those of intervals (`caraway.offline.kernel.exact_sums`, `caraway.offline.kernel.extremes`).

If aggregate inputs end, as those of a keyed dataset do when a newer version replaces one, windows are no intervals. But
counts, sums and moments of a window are still those of all inputs that have entered it, less those of all that have
left it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.dataplane.index.aggregates.columns import Family, decimal_text
from caraway.dataplane.index.aggregates.layout import Layout, reads_values
from caraway.dataplane.index.aggregates.results import Result, results_of
from caraway.dataplane.index.storage.intervals import WINDOW_REST_US
from caraway.dtypes.types import DataType
from caraway.expr.polars.values import polars_type, to_polars
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.graph.windows import ContinuousWindow
from caraway.offline.columns import replaced
from caraway.offline.history.intervals import NumberIntervals, SortedRows, WindowInputs

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FUNCTION = AggregateFunction
# The functions of numbers that can be computed from sums or extremes of intervals.
_OF_NUMBERS = frozenset(
    {FUNCTION.SUM, FUNCTION.AVERAGE, FUNCTION.STDDEV, FUNCTION.VARIANCE, FUNCTION.MIN, FUNCTION.MAX}
)
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class WindowHistory:
    """Aggregates over continuous windows of all inputs of an index."""

    def __init__(self, plan: IndexPlan, inputs: WindowInputs) -> None:
        """Sort the inputs."""
        layout = Layout(plan, 0)
        self._inputs = inputs
        self._begun = inputs.begun()
        self._lived: dict[int | None, SortedRows] = {}
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
        intervals: dict[int | None, tuple[SortedRows, Ints, Ints]] = {}
        columns = []
        for name in names:
            result = self._results[name]
            length_us = result.spec.window_us
            if length_us not in intervals:
                intervals[length_us] = self._interval(length_us, groups, at_us, begun)
            values = self._values(result, *intervals[length_us])
            columns.append(replaced(values, pl.Series(found), result.unseen, result.spec.dtype))
        return columns, found

    def _interval(self, length_us: int | None, groups: Ints, at_us: Ints, begun: Ints) -> tuple[SortedRows, Ints, Ints]:
        """Return the rows that make windows of a length, and the interval of each window among them."""
        if self._inputs.overlap:
            lived = self._lived.get(length_us)
            if lived is None:
                lived = self._lived[length_us] = self._inputs.lived(length_us)
            return lived, lived.timeline.begins[groups], lived.timeline.up_to(groups, at_us)
        timeline = self._begun.timeline
        if length_us is None:
            return self._begun, timeline.begins[groups], begun
        return self._begun, timeline.up_to(groups, at_us - (length_us + WINDOW_REST_US)), begun

    def _values(self, result: Result, rows: SortedRows, first: Ints, last: Ints) -> pl.Series:
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


def is_computable(plan: IndexPlan, spec: AggregateSpec) -> bool:
    """Return whether an aggregate of a plan can be computed from counts, sums and extremes of intervals of rows."""
    if plan.kind is not IndexKind.AGGREGATE or not isinstance(spec.window, ContinuousWindow):
        return False
    return (spec.function is FUNCTION.COUNT and not spec.unique) or spec.function in _OF_NUMBERS


def _computed(spec: AggregateSpec, column: NumberIntervals, first: Ints, last: Ints) -> pl.Series:
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
