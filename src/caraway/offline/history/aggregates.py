"""Aggregates of an index as of many times at once, as far as they are computed in columns."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.query.model import Rows
from caraway.dataplane.index.aggregates.layout import reads_values
from caraway.dataplane.index.storage.intervals import has_max_event_time
from caraway.dataplane.topics.codec import DELETE
from caraway.expr.polars.values import from_polars
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import IndexPlan
from caraway.offline.columns import replaced
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.inputs import NEVER, AggregateInputs
from caraway.offline.history.intervals import WindowInputs
from caraway.offline.history.records import END, INGESTED, OP, ORDER, TIME, IndexRecords
from caraway.offline.history.windows import WindowHistory, is_computable

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

EXTREMES = frozenset({AggregateFunction.MIN, AggregateFunction.MAX})
_BASE = "record base"


class AggregateHistory:
    """All aggregate inputs of an index."""

    def __init__(
        self,
        plan: IndexPlan,
        groups: Groups,
        loaded: frozenset[str],
        inputs: Callable[[], WindowInputs],
        *,
        complete: bool,
    ) -> None:
        """Take the inputs of an index, unless nothing can be read from them.

        Args:
            plan: The index.
            groups: The keys.
            loaded: The columns of rows that the inputs have.
            inputs: Returns the inputs.
            complete: False if nothing can be read; see `is_complete`.
        """
        self.groups = groups
        self.loaded = loaded
        """The columns of rows that were given."""
        self.complete = complete
        """False if nothing can be read."""
        self.columns: frozenset[str] = frozenset()
        """The aggregates that can be read."""
        if not complete:
            return
        found = inputs()
        self._history = WindowHistory(plan, found)
        self.columns = frozenset(
            spec.into
            for spec in plan.aggregates
            if is_computable(plan, spec)
            and (not reads_values(spec) or spec.of in loaded)
            # Inputs may leave windows in another order than they entered them. Then the inputs in a window aren't
            # adjacent rows, so their least and greatest values can't be looked up as those of an interval of rows.
            and not (found.overlap and spec.function in EXTREMES)
        )

    @staticmethod
    def columns_of(plan: IndexPlan, names: Sequence[str]) -> frozenset[str]:
        """Return the columns of rows from which the values of aggregates are computed in columns."""
        read = {
            spec.of
            for spec in plan.aggregates
            if spec.into in names and spec.of is not None and reads_values(spec) and is_computable(plan, spec)
        }
        return frozenset(read).intersection(column.name for column in plan.schema.columns)

    def read(self, names: Sequence[str], groups: Ints, at_us: Ints) -> Rows:
        """Return aggregates of groups as of times, by the numbers of keys, in stored form.

        Raises `OverflowError` if a decimal has more units than 64 bits hold.
        """
        columns, found = self.read_series(names, groups, at_us)
        types = [self._history.dtype(name) for name in names]
        return [from_polars(series, dtype) for series, dtype in zip(columns, types, strict=True)], found.tolist()

    def read_series(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[pl.Series], Flags]:
        """Return aggregates as `read` does, as columns of polars."""
        known = groups != MISSING
        if known.all():
            return self._history.read(names, groups, at_us)
        columns, there = self._history.read(names, groups[known], at_us[known])
        found = np.zeros(len(groups), np.bool_)
        found[known] = there
        kept = pl.Series(known)
        places = pl.Series(np.cumsum(known) - 1, dtype=pl.Int64).set(~kept, None)
        spread = [
            replaced(series.gather(places), kept, self._history.unseen(name), self._history.dtype(name))
            for name, series in zip(names, columns, strict=True)
        ]
        return spread, found


def is_complete(plan: IndexPlan, *, known: bool, revised: bool) -> bool:
    """Return whether aggregates can be read from all records of an index.

    With discrete windows, a key is found only when one of them has closed. And what was known before a revision isn't
    among the records.
    """
    return not (has_max_event_time(plan) or (known and revised))


def history_of(plan: IndexPlan, records: IndexRecords, *, known: bool = False) -> AggregateHistory:
    """Return the aggregates of records in memory; if `known`, a record counts only from its ingestion on."""
    frame = records.frame
    types = {column.name: column.dtype for column in plan.schema.columns}
    loaded = frozenset(frame.columns).intersection(types)
    ends = bool((frame[OP] == DELETE).any())
    if ends:
        frame = ended(plan, frame, known=known)
    groups = Groups(plan.schema.keys)
    numbers = groups.add(frame)

    def inputs() -> WindowInputs:
        return AggregateInputs(
            groups=numbers,
            count=groups.count,
            times=frame[TIME].to_numpy(),
            ends=frame[END].to_numpy() if ends else None,
            seen=frame[INGESTED].to_numpy() if known else None,
            values={name: (types[name], frame[name]) for name in loaded},
        )

    complete = is_complete(plan, known=known, revised=records.revised)
    return AggregateHistory(plan, groups, loaded, inputs, complete=complete)


def ended(plan: IndexPlan, frame: pl.DataFrame, *, known: bool) -> pl.DataFrame:
    """Return aggregate inputs with the times of their ends, without those that never count.

    If `known`, an input ends when its end is ingested, if that is later, and may count until then.
    """
    if known:
        return _with_ends(frame, known=True)
    return held(plan, frame).filter(pl.col(END) > pl.col(TIME))


def held(plan: IndexPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Return aggregate inputs with the times of their ends, without those that end at their begin, or before it.

    The begin of an input is its timestamp, which is a column of the row if another column gives its time. An input that
    ends before that time never counts, but the time advances the max event time.
    """
    begin = pl.col(plan.schema.timestamp).to_physical() if plan.along else pl.col(TIME)
    return _with_ends(frame, known=False).filter(pl.col(END) > begin)


def _with_ends(frame: pl.DataFrame, *, known: bool) -> pl.DataFrame:
    """Return aggregate inputs with the times of their ends; see `ended`.

    A changelog writes an input with an identity, and its end as a delete with the same identity but for the last byte
    (`caraway.dataplane.index.records.locations`).
    """
    # Polars 1.30, the oldest version that is supported, has no slices of bytes. So identities are compared as text.
    based = frame.with_columns(pl.col(ORDER).bin.encode("hex").str.head(-2).alias(_BASE))
    is_end = pl.col(OP) == DELETE
    end = pl.max_horizontal(TIME, INGESTED) if known else pl.col(TIME)
    ends = based.filter(is_end).select(_BASE, end.alias(END))
    lives = based.filter(~is_end).join(ends, on=_BASE, how="left")
    lives = lives.with_columns(pl.col(END).fill_null(NEVER))
    return lives.drop(_BASE)
