"""Versions of keyed datasets as of many times at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.query.model import Rows
from caraway.dataplane.topics.codec import PUT
from caraway.dtypes.types import DATETIME
from caraway.expr.polars.values import INSTANT, from_polars
from caraway.graph.plan.model import IndexPlan
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.records import INGESTED, OP, ORDER, TIME, IndexRecords
from caraway.offline.kernel.timeline import Timeline

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Versions(ABC):
    """All versions of an index."""

    def __init__(self, plan: IndexPlan, loaded: Iterable[str], *, complete: bool) -> None:
        """Have the columns `loaded` of rows."""
        self.groups = Groups(plan.schema.keys)
        self.types = {column.name: column.dtype for column in plan.schema.columns}
        self.loaded = frozenset(self.types).intersection(loaded)
        """The columns of rows that were given."""
        self.complete = complete
        """False if nothing can be read: what was known before a revision isn't among the records."""
        self.columns = self.loaded | {plan.schema.timestamp}
        """The columns that can be read."""

    @staticmethod
    def columns_of(plan: IndexPlan, names: Sequence[str]) -> frozenset[str]:
        """Return the columns of rows from which the values of columns are read."""
        return frozenset(names).intersection(column.name for column in plan.schema.columns)

    def read(self, names: Sequence[str], groups: Ints, at_us: Ints) -> Rows:
        """Return columns of the versions that hold at times, by the numbers of keys, in stored form."""
        columns, found = self.read_series(names, groups, at_us)
        # The timestamp is the only column that isn't in `types`, so a name that is missing there is the timestamp's.
        types = [self.types.get(name, DATETIME) for name in names]
        return [from_polars(series, dtype) for series, dtype in zip(columns, types, strict=True)], found.tolist()

    @abstractmethod
    def read_series(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[pl.Series], Flags]:
        """Return columns as `read` does, as columns of polars."""


class VersionHistory(Versions):
    """All versions of an index, in memory."""

    def __init__(self, plan: IndexPlan, records: IndexRecords, *, known: bool = False) -> None:
        """Take the records of an index; if `known`, a record is seen only from its ingestion on."""
        frame = records.frame
        super().__init__(plan, frame.columns, complete=not (known and records.revised))
        self._numbers = self.groups.add(frame)
        self._timeline = Timeline(self._numbers, frame[TIME].to_numpy(), self.groups.count, frame[ORDER])
        # For each place of the timeline, the row whose version is current while the row at this place is the last one
        # seen. The two differ only if records are seen late.
        self._rows = self._timeline.places
        if known:
            self._see_late(np.maximum(frame[TIME].to_numpy(), frame[INGESTED].to_numpy()))
        self._frame = frame.drop(ORDER)
        self._held = frame[OP].to_numpy() == PUT

    def _see_late(self, seen_us: Ints) -> None:
        """See each row only from a time on: the row that holds is then the latest one of those that are seen."""
        latest = np.empty(len(seen_us), np.int64)
        latest[self._rows] = np.arange(len(seen_us))
        seen = Timeline(self._numbers, seen_us, self.groups.count)
        # The running maximum never carries over from one group to the next, since all places of a group are greater
        # than those of the groups before it.
        self._rows = self._rows[np.maximum.accumulate(latest[seen.places])]
        self._timeline = seen

    def read_series(self, names: Sequence[str], groups: Ints, at_us: Ints) -> tuple[list[pl.Series], Flags]:
        """Return columns as `read` does, as columns of polars."""
        places, found = self._places(groups, at_us)
        columns = []
        for name in names:
            if name in self.types:
                columns.append(self._frame[name].gather(places))
            else:
                columns.append(self._frame[TIME].gather(places).cast(INSTANT))
        return columns, found

    def _places(self, groups: Ints, at_us: Ints) -> tuple[pl.Series, Flags]:
        """Return the positions of the rows that hold, null where none does; and whether one does."""
        if not self.groups.count:
            return pl.Series([None] * len(groups), dtype=pl.UInt32), np.zeros(len(groups), np.bool_)
        known = groups != MISSING
        safe = np.where(known, groups, 0)
        behind = self._timeline.up_to(safe, at_us)
        found = known & (behind > self._timeline.begins[safe])
        rows = self._rows[np.where(found, behind - 1, 0)]
        found &= self._held[rows]
        return pl.Series(rows).set(pl.Series(~found), None), found
