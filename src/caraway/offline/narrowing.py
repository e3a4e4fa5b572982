"""Reads of a few keys: the records of all other keys are left out first.

A sample has some hundred rows, so nearly all records of a dataset are of other keys. Without them, an index that is
built anew, several times for values that differ, is small.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.query.model import Instants, Rows
from caraway.dataplane.archive.store.reading import ArchivedRecords
from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.records import TopicRecords, columns_needed, index_frame
from caraway.offline.reader import OfflineReader, SeriesReader

_ROW_NUMBER = "record row"

Key = tuple[object, ...]
# A function that returns a reader of all datasets, given some records.
MakeReader = Callable[[TopicRecords], OfflineReader]


class KeyRecords:
    """The records of the keys that were asked for, which stay in memory, of the datasets of one graph."""

    def __init__(self, source: TopicRecords, indexes: Iterable[IndexPlan], *, whole: bool = False) -> None:
        """Take the records of the datasets that `indexes` are of from `source`.

        If they are `whole`, all columns of records are read at once, so that a topic is read a single time.
        """
        self._source = source
        self._whole = whole
        self._plans = {plan.dataset: plan for plan in indexes}
        self._narrowed: dict[tuple[str, frozenset[str]], _OfKeys] = {}

    def of(self, dataset: str, keys: Sequence[Key]) -> TopicRecords:
        """Return the records on which the rows of some keys of a dataset depend.

        Args:
            dataset: The dataset.
            keys: The values of the key fields in declared order, in stored form.
        """
        plan = self._plans[dataset]
        once = {repr(key): key for key in keys} if is_divisible(plan) else {}
        name = dataset, frozenset(once)
        if name not in self._narrowed:
            self._narrowed[name] = _OfKeys(self._source, plan, list(once.values()), whole=self._whole)
        return self._narrowed[name]


class _OfKeys(TopicRecords):
    """The records of some keys; without any, all records."""

    def __init__(self, source: TopicRecords, plan: IndexPlan, keys: Sequence[Key], *, whole: bool) -> None:
        self._source = source
        self._whole = whole
        self._plan = plan
        fields = [field.name for field in plan.fields]
        # The keys are given in the order of the dataset's fields, but records have theirs in the order of the groupby.
        declared = sorted((key.name for key in plan.schema.keys), key=fields.index)
        order = [declared.index(key.name) for key in plan.schema.keys]
        self._keys = [tuple(key[position] for position in order) for key in keys]
        self._kept: dict[tuple[str, ...], ArchivedRecords] = {}

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records; see `TopicRecords.records`."""
        if self._whole:
            wanted = columns_needed(self._plan, [column.name for column in self._plan.schema.columns])
        name = tuple(wanted)
        if name not in self._kept:
            self._kept[name] = self._of_keys(topic, wanted) if self._keys else self._source.records(topic, wanted)
        return self._kept[name]

    def _of_keys(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of the keys, of which one piece of the topic after the other is searched."""
        pieces: list[ArchivedRecords] = []
        identities: list[pl.Series] = []
        for piece in self._source.pieces(topic, wanted):
            mine = piece.rows.filter(self._mine(piece))
            pieces.append(replace(piece, rows=mine))
            identities.append(mine[piece.columns.id].drop_nulls())
        if not pieces:
            return self._source.records(topic, wanted)
        if self._plan.revised:
            # Another revision of a record may have another key. If that revision were left out, the record that it
            # replaces or retracts would still count.
            known = pl.concat(identities).unique().implode()
            pieces = [
                replace(piece, rows=piece.rows.filter(self._mine(piece) | _among(piece, known)))
                for piece in self._source.pieces(topic, wanted)
            ]
        return replace(pieces[0], rows=pl.concat([piece.rows for piece in pieces]))

    def pieces(self, topic: TopicPlan, wanted: Sequence[str]) -> Iterator[ArchivedRecords]:
        """Yield all records at once, since they are few."""
        yield self.records(topic, wanted)

    def rows(self, topic: TopicPlan) -> int:
        """Return how many records there are."""
        return self.records(topic, columns_needed(self._plan, ())).rows.height

    def _mine(self, found: ArchivedRecords) -> pl.Series:
        """Return which records have one of the keys."""
        plan = self._plan
        rows = found.rows.with_row_index(_ROW_NUMBER)
        frame = index_frame(plan, replace(found, rows=rows), [_ROW_NUMBER])
        groups = Groups(plan.schema.keys)
        numbers = groups.add(frame)
        asked = groups.find(self._keys)
        mine = np.zeros(found.rows.height, np.bool_)
        mine[frame[_ROW_NUMBER].to_numpy()[np.isin(numbers, asked[asked != MISSING])]] = True
        return pl.Series(mine, dtype=pl.Boolean)


def _among(found: ArchivedRecords, identities: pl.Series) -> pl.Series:
    return found.rows[found.columns.id].is_in(identities).fill_null(value=False)


class NarrowReader(SeriesReader):
    """Reads datasets from the records of the keys that a read asks for."""

    def __init__(self, records: KeyRecords, make: MakeReader) -> None:
        """Read `records` by readers that `make` makes."""
        self._records = records
        self._make = make

    def read(self, dataset: str, keys: Sequence[Key], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Read rows; see `OfflineReader.read`."""
        if not keys:
            return [[] for _ in columns], []
        with self._make(self._records.of(dataset, keys)) as reader:
            return reader.read(dataset, keys, at_us, columns)

    def has_series(self, dataset: str, columns: Sequence[str]) -> bool:
        """Return False: the few rows of a sample are read as values."""
        del dataset, columns
        return False

    def read_series(
        self, dataset: str, keys: Sequence[pl.Series], at_us: npt.NDArray[np.int64], columns: Sequence[str]
    ) -> list[pl.Series] | None:
        """Return None: see `has_series`."""
        del dataset, keys, at_us, columns
        return None
