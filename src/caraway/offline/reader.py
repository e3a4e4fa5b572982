"""The reader of offline queries: rows of datasets as of many times, from the archive instead of a server's index."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.query.model import Instants, QueryReader, Rows
from caraway.dataplane.index.storage.keys import FIRST_TIME_US, LAST_TIME_US
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.graph.plan.model import IndexKind, IndexPlan, TopicPlan
from caraway.offline.history.aggregates import AggregateHistory, history_of
from caraway.offline.history.groups import MISSING
from caraway.offline.history.records import TopicRecords, columns_needed, read_records
from caraway.offline.history.replayed import KnownIndex, ReplayedIndex
from caraway.offline.history.spilled import Spill, SpilledVersions, spilled_aggregates
from caraway.offline.history.versions import VersionHistory, Versions
from caraway.offline.kernel.blocks import BlockSizes
from caraway.offline.stopwatch import READ, Stopwatch
from caraway.process.scratch import ScratchFolder

Ints = npt.NDArray[np.int64]
History = Versions | AggregateHistory


class SeriesReader(QueryReader, Protocol):
    """A reader that also reads columns of polars."""

    def has_series(self, dataset: str, columns: Sequence[str]) -> bool:
        """Return whether columns of a dataset can be read by `read_series`."""
        ...

    def read_series(
        self, dataset: str, keys: Sequence[pl.Series], at_us: Ints, columns: Sequence[str]
    ) -> list[pl.Series] | None:
        """Read rows as `read` does, as columns of polars; see `OfflineReader.read_series`."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """The records that a reader holds in memory.

    Attributes:
        rows: A dataset with more records is sorted on the disk.
        sizes: The records that are in memory then.
    """

    rows: int
    sizes: BlockSizes


class OfflineReader(SeriesReader):
    """Reads datasets of one graph as of any times. Not thread safe.

    A dataset's records are read at its first use, and are kept in memory, or on the disk if there are too many, until
    the reader is closed.
    """

    def __init__(
        self,
        source: TopicRecords,
        indexes: Iterable[IndexPlan],
        topics: Iterable[TopicPlan],
        *,
        erased: ErasedKeys | None = None,
        known: bool = False,
        now_us: int | None = None,
        memory: Memory | None = None,
        watch: Stopwatch | None = None,
    ) -> None:
        """Read the datasets that `indexes` are of.

        Args:
            source: The records of topics.
            indexes: The indexes.
            topics: The topics from which they are computed.
            erased: Keys that are read as if they had never had a row.
            known: True: a read sees only records that had been ingested by its time, so that no record which came late,
                or was added later, shows up in the past.
            now_us: The time in microseconds up to which windows that close by the clock are closed; None for the
                present.
            memory: The records that are held in memory; None for any number.
            watch: Takes the time of reading and sorting records, and of building indexes.
        """
        self._watch = watch or Stopwatch()
        self._memory = memory
        self._known = known
        self._now_us = time.time_ns() // 1000 if now_us is None else now_us
        self._source = source
        self._plans = {plan.dataset: plan for plan in indexes}
        self._topics = {topic.name: topic for topic in topics}
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._histories: dict[str, History] = {}
        self._replayed: dict[str, ReplayedIndex | KnownIndex] = {}
        self._folder: ScratchFolder | None = None
        self._folders = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was built, in memory and on the disk."""
        self._histories.clear()
        for replayed in self._replayed.values():
            replayed.close()
        self._replayed.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read rows; see `caraway.compute.query.model.Reader.read`.

        Raises `UnavailableError` if the broker or the object store doesn't answer, or this process lacks a secret to
        compare keys with erased ones.
        """
        plan = self._plans[dataset]
        if not keys:
            return [[] for _ in columns], []
        if plan.window is not None:
            return self._replay(plan).read(dataset, keys, at_us, columns)
        asked = {name: position for position, name in enumerate(_key_fields(plan))}
        values: dict[str, list[object]] = {}
        found: list[bool] | None = None
        others = [name for name in dict.fromkeys(columns) if name not in asked]
        history = self._history(plan, others)
        computed = [name for name in others if name in history.columns]
        if history.complete and (computed or not others):
            groups, times = self._asked(plan, history, keys, at_us)
            # The history holds decimals in 64 bits and raises this error for longer ones. The columns are then read
            # from the replayed index below, which has integers of any size.
            with suppress(OverflowError):
                rows, found = history.read(computed, groups, times)
                values |= zip(computed, rows, strict=True)
        left = [name for name in others if name not in values]
        if left or found is None:
            rows, found = self._replay(plan).read(dataset, keys, at_us, left)
            values |= zip(left, rows, strict=True)
        for name in asked.keys() & set(columns):
            position = asked[name]
            values[name] = [key[position] for key in keys]
        return [values[name] for name in columns], found

    def has_series(self, dataset: str, columns: Sequence[str]) -> bool:
        """Return whether columns of a dataset can be read by `read_series`."""
        plan = self._plans[dataset]
        if plan.window is not None:
            return False
        history = self._history(plan, [name for name in columns if name not in _key_fields(plan)])
        return history.complete and set(columns) <= {*history.columns, *_key_fields(plan)}

    def read_series(
        self, dataset: str, keys: Sequence[pl.Series], at_us: Ints, columns: Sequence[str]
    ) -> list[pl.Series] | None:
        """Read rows as `read` does, as columns of polars; keys are a column for each key field, without nulls.

        It returns None if the rows can only be read by `read`. `has_series` must be true of the columns.

        Raises `UnavailableError` if this process lacks a secret to compare keys with erased ones.
        """
        plan = self._plans[dataset]
        asked = {name: position for position, name in enumerate(_key_fields(plan))}
        others = [name for name in dict.fromkeys(columns) if name not in asked]
        history = self._history(plan, others)
        if self._erased.hides(plan.topic, plan.schema.keys) is not None:
            return None
        groups = history.groups.find_series([keys[asked[key.name]] for key in plan.schema.keys])
        try:
            found, _ = history.read_series(others, groups, np.clip(at_us, FIRST_TIME_US, LAST_TIME_US))
        except OverflowError:
            return None
        values = dict(zip(others, found, strict=True)) | {name: keys[position] for name, position in asked.items()}
        return [values[name] for name in columns]

    def _asked(
        self, plan: IndexPlan, history: History, keys: Sequence[tuple[object, ...]], at_us: Instants
    ) -> tuple[Ints, Ints]:
        """Return the numbers of keys, and the times at which they are read; erased keys are missing."""
        fields = _key_fields(plan)
        if (order := [fields.index(key.name) for key in plan.schema.keys]) != list(range(len(fields))):
            keys = [tuple(key[position] for position in order) for key in keys]
        groups = history.groups.find(keys)
        hides = self._erased.hides(plan.topic, plan.schema.keys)
        if hides is not None:
            encode = RecordCodec.of_keys(plan.schema.keys).encode_key
            groups = np.where([hides(encode(key) or b"") for key in keys], MISSING, groups)
        times = np.full(len(keys), at_us, np.int64) if isinstance(at_us, int) else np.asarray(at_us, np.int64)
        return groups, np.clip(times, FIRST_TIME_US, LAST_TIME_US)

    def _history(self, plan: IndexPlan, names: Sequence[str]) -> History:
        """Return the history of a dataset with at least these columns, as far as it can have them."""
        known = self._histories.get(plan.dataset)
        kind = VersionHistory if plan.kind is IndexKind.VERSIONS else AggregateHistory
        wanted = kind.columns_of(plan, names)
        if known is None or not wanted <= known.loaded:
            # If further columns of a dataset are asked for, the dataset is read again with all of its columns, so that
            # it is never read a third time.
            every = kind.columns_of(plan, [field.name for field in plan.fields]) if known is not None else wanted
            self._histories.pop(plan.dataset, None)
            with self._watch.step(READ):
                known = self._histories[plan.dataset] = self._made(plan, sorted(every))
        return known

    def _made(self, plan: IndexPlan, wanted: Sequence[str]) -> History:
        """Return the history of a dataset from all its records."""
        topic, versions = self._topics[plan.topic], plan.kind is IndexKind.VERSIONS
        rows = 0 if self._memory is None else self._source.rows(topic)
        if self._memory is None or rows <= self._memory.rows:
            records = read_records(self._source, plan, topic, wanted)
            made = VersionHistory if versions else history_of
            return made(plan, records, known=self._known)
        spill = Spill(self._new_folder(), rows, self._memory.sizes)
        pieces = self._source.pieces(topic, columns_needed(plan, wanted))
        spilled = SpilledVersions if versions else spilled_aggregates
        return spilled(plan, pieces, wanted, spill, known=self._known)

    def _new_folder(self) -> Path:
        if self._folder is None:
            self._folder = ScratchFolder("offline")
        self._folders += 1
        return self._folder.path / str(self._folders)

    def _replay(self, plan: IndexPlan) -> ReplayedIndex | KnownIndex:
        replayed = self._replayed.get(plan.dataset)
        if replayed is None:
            folder = self._new_folder()
            topic = self._topics[plan.topic]
            made = KnownIndex if self._known else ReplayedIndex
            with self._watch.step(READ):
                replayed = made(plan, topic, self._source, folder=folder, erased=self._erased, now_us=self._now_us)
            self._replayed[plan.dataset] = replayed
        return replayed


def _key_fields(plan: IndexPlan) -> list[str]:
    """Return the key columns in the order of the dataset; records have them in the order of the groupby."""
    keys = {key.name for key in plan.schema.keys}
    return [field.name for field in plan.fields if field.name in keys]
