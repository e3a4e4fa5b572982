"""Indexes built anew from archived records, for what isn't computed in columns.

The records are written to a database of their own by the code that writes a server's index, and read by the code that
reads it. So the answers are those of a server by construction, at some 20 us for a record.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from caraway.compute.query.model import Instants, Rows
from caraway.dataplane.archive.store.messages import encoded
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.records.closing_time import advance_clock_time
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.offline.history.records import TopicRecords, columns_needed

# The number of records that are written to the index at once.
BATCH = 5_000


class ReplayedIndex:
    """An index of one dataset, in a folder of its own."""

    def __init__(
        self, plan: IndexPlan, topic: TopicPlan, source: TopicRecords, *, folder: Path, erased: ErasedKeys, now_us: int
    ) -> None:
        """Build the index in an empty folder from all records of its topic.

        Windows that close by the clock are closed up to `now_us`.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        # This index only answers reads. The server's own index emits the rows that jobs read, so this one emits none.
        plan = replace(plan, emits=None)
        wanted = [column.name for column in plan.schema.columns]
        self._store = IndexStore(folder)
        writer = IndexWriter(self._store, erased=erased)
        for records in source.pieces(topic, columns_needed(plan, wanted)):
            for messages in _batches(encoded(topic.schema, records.columns, records.rows)):
                writer.apply(plan, messages)
        if plan.by_clock:
            advance_clock_time(self._store, plan.asset, now_us)
        self._rows = DatasetReader(IndexReader(self._store, erased, bounded=False), [plan])

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read rows; see `caraway.compute.query.model.Reader.read`."""
        return self._rows.read(dataset, keys, at_us, columns)

    def close(self) -> None:
        """Close the database."""
        self._store.close()


class KnownIndex:
    """An index of one dataset that is built while it is read, so that each read sees what had been ingested by then."""

    def __init__(
        self, plan: IndexPlan, topic: TopicPlan, source: TopicRecords, *, folder: Path, erased: ErasedKeys, now_us: int
    ) -> None:
        """Read all records of the index's topic; nothing is built yet.

        Windows that close by the clock are closed up to the time of each read, but not beyond `now_us`.

        Raises `UnavailableError` if the broker or the object store doesn't answer.
        """
        self._plan = replace(plan, emits=None)
        self._topic = topic
        self._folder = folder
        self._erased = erased
        wanted = [column.name for column in plan.schema.columns]
        records = source.records(topic, columns_needed(self._plan, wanted))
        columns = records.columns
        self._records = replace(records, rows=records.rows.sort(columns.ingested, maintain_order=True))
        self._ingested = self._records.rows[columns.ingested].to_physical().to_numpy()
        self._now_us = now_us
        self._builds = 0

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read rows, each as it was known at its time; see `caraway.compute.query.model.Reader.read`."""
        times = np.full(len(keys), at_us, np.int64) if isinstance(at_us, int) else np.asarray(at_us, np.int64)
        order = np.argsort(times, kind="stable")
        # `reached` is the number of records that had been ingested by the time of each read, and `clock` the time up to
        # which windows that close by the clock are closed. Reads with equal values of both see the same state of the
        # index.
        reached = np.searchsorted(self._ingested, times[order], side="right")
        clock = np.minimum(times[order], self._now_us) if self._plan.by_clock else np.zeros(len(order), np.int64)
        starts = np.flatnonzero(np.diff(reached, prepend=-1) | np.diff(clock, prepend=clock[:1])).tolist()
        values: list[list[object]] = [[None] * len(keys) for _ in columns]
        found = [False] * len(keys)
        self._builds += 1
        with IndexStore(self._folder / str(self._builds)) as store:
            writer = IndexWriter(store, erased=self._erased)
            rows = DatasetReader(IndexReader(store, self._erased, bounded=False), [self._plan])
            messages = encoded(self._topic.schema, self._records.columns, self._records.rows)
            written = 0
            for first, end in pairwise([*starts, len(order)]):
                while written < reached[first]:
                    some = list(islice(messages, min(BATCH, int(reached[first]) - written)))
                    writer.apply(self._plan, some)
                    written += len(some)
                if self._plan.by_clock:
                    advance_clock_time(store, self._plan.asset, int(clock[first]))
                places = order[first:end].tolist()
                read, there = rows.read(dataset, [keys[p] for p in places], times[places].tolist(), columns)
                for column, part in zip(values, read, strict=True):
                    for place, value in zip(places, part, strict=True):
                        column[place] = value
                for place, is_there in zip(places, there, strict=True):
                    found[place] = is_there
        shutil.rmtree(self._folder / str(self._builds), ignore_errors=True)
        return values, found

    def close(self) -> None:
        """Do nothing: nothing is kept open."""


def _batches(messages: Iterator[Message]) -> Iterator[list[Message]]:
    while batch := list(islice(messages, BATCH)):
        yield batch
