"""Aggregates of an index as of many times at once, as far as they are computed in columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.index.aggregates.layout import reads_values
from caraway.index.storage.intervals import has_max_event_time
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.records import OP, TIME
from caraway.offline.history.windows import NumberColumn, WindowHistory, is_computable
from caraway.offline.kernel.timeline import Timeline
from caraway.plan.model import IndexPlan
from caraway.query.model import Rows
from caraway.topics.codec import DELETE

Ints = npt.NDArray[np.int64]


class AggregateHistory:
    """All aggregate inputs of an index."""

    def __init__(self, plan: IndexPlan, frame: pl.DataFrame) -> None:
        """Take the records of an index, as `read_records` returns them."""
        self._plan = plan
        self.groups = Groups(plan.schema.keys, frame)
        self.loaded = frozenset(frame.columns).intersection(column.name for column in plan.schema.columns)
        """The columns of rows that were given."""
        self.columns: frozenset[str] = frozenset()
        """The aggregates that can be read."""
        self.complete = not (has_max_event_time(plan) or (frame[OP] == DELETE).any())
        """False if not even the rows in continuous windows are intervals, and so nothing can be read.

        An input that ended is in no window any more. With discrete windows, a key is found only when one has closed.
        """
        if not self.complete:
            return
        timeline = Timeline(self.groups.numbers, frame[TIME].to_numpy(), self.groups.count)
        types = {column.name: column.dtype for column in plan.schema.columns}
        columns: dict[str, NumberColumn] = {}
        for name in {spec.of for spec in plan.aggregates if spec.of is not None and reads_values(spec)} & self.loaded:
            try:
                columns[name] = NumberColumn(types[name], frame[name].gather(timeline.places))
            except OverflowError:
                continue
        self._history = WindowHistory(plan, timeline, columns)
        self.columns = frozenset(
            spec.into
            for spec in plan.aggregates
            if is_computable(plan, spec) and (not reads_values(spec) or spec.of in columns)
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
        """Return aggregates of groups as of times, by the numbers of keys, in stored form."""
        known = np.flatnonzero(groups != MISSING)
        columns, found = self._history.read(names, groups[known], at_us[known])
        if len(known) == len(groups):
            return columns, found.tolist()
        there = np.zeros(len(groups), np.bool_)
        there[known] = found
        return [self._spread(name, values, known, len(groups)) for name, values in zip(names, columns, strict=True)], (
            there.tolist()
        )

    def _spread(self, name: str, values: list[object], known: Ints, rows: int) -> list[object]:
        spread = [self._history.unseen(name)] * rows
        for place, value in zip(known.tolist(), values, strict=True):
            spread[place] = value
        return spread
