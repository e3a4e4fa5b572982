"""The records of datasets from the archive and the topics, for explanations.

A dataset's records are searched piece by piece for those of the key, so memory is bounded by the key's own records, but
for datasets whose windows close by the records of all keys.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from caraway.compute.why.model import Position, Source
from caraway.compute.why.parts import Held, Histories, Inputs, Key, Parts
from caraway.compute.why.windows import NEVER
from caraway.dataplane.topics.codec import DELETE, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dtypes.types import DATETIME, DataType
from caraway.errors import InvalidInputError
from caraway.expr.polars.values import from_polars
from caraway.graph.plan.model import GraphPlan, IndexPlan
from caraway.graph.specs import DatasetSpec
from caraway.offline.history.aggregates import held
from caraway.offline.history.groups import MISSING, Groups
from caraway.offline.history.records import END, INGESTED, OP, ORDER, TIME, columns_needed, index_frame, settled
from caraway.offline.narrowing import KeyRecords
from caraway.offline.why.sources import SourceRecords

Ints = npt.NDArray[np.int64]

# A value is explained only if it depends on at most this many records. For the explanation, all of these records are
# aggregated again, and each takes some 100 bytes and a microsecond or two.
MAX_RECORDS = 5_000_000


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """The identity of a record, which tells the source record from which it was made, and its own place."""

    identity: bytes
    position: Position


class FrameParts(Parts):
    """Records in columns."""

    def __init__(
        self, frame: pl.DataFrame, types: Mapping[str, DataType], topic: str, positions: Sequence[str]
    ) -> None:
        """Hold records in order.

        Args:
            frame: The records, with the columns of `caraway.offline.history.records`.
            types: The columns of rows.
            topic: The name of the topic.
            positions: The names of the columns of partitions, offsets and numbers in messages.
        """
        self._frame = frame
        self._types = {name: dtype for name, dtype in types.items() if name in frame.columns}
        self._topic = topic
        self._positions = positions
        self.times = frame[TIME].to_numpy().astype(np.int64)
        self.ends = frame[END].to_numpy().astype(np.int64) if END in frame.columns else np.full(frame.height, NEVER)

    def column(self, name: str, places: Ints) -> list[object]:
        """Return values of a column; see `Parts`."""
        return from_polars(self._frame[name].gather(places), self._types[name])

    def held(self, place: int) -> Held:
        """Return a record; see `Parts`."""
        one = self._frame[place : place + 1]
        partition, offset, number = (int(one[name].item()) for name in self._positions)
        position = Position(topic=self._topic, partition=partition, offset=offset, number=number)
        return Held(
            time_us=int(self.times[place]),
            row={name: from_polars(one[name], dtype)[0] for name, dtype in self._types.items()},
            end_us=int(self.ends[place]),
            deleted=one[OP].item() == DELETE,
            ingested_us=int(one[INGESTED].item()),
            position=position,
            origin=RecordOrigin(one[ORDER].item(), position),
        )


class TopicHistories(Histories):
    """The records of a graph's datasets. Not thread safe."""

    def __init__(
        self,
        records: KeyRecords,
        plan: GraphPlan,
        datasets: Mapping[str, DatasetSpec],
        sources: SourceRecords,
        erased: ErasedKeys,
    ) -> None:
        """Read datasets.

        Args:
            records: The records of keys, as a whole.
            plan: The plan of the graph.
            datasets: The datasets of the graph.
            sources: Finds the records of sources.
            erased: The keys without rows.
        """
        self._records = records
        self._indexes = {index.dataset: index for index in plan.indexes}
        self._topics = {topic.name: topic for topic in plan.topics}
        self._datasets = datasets
        self._sources = sources
        self._erased = erased

    def erased(self, dataset: str, key: Key) -> bool:
        """Return whether a key is erased; see `Histories`."""
        plan = self._indexes[dataset]
        hides = self._erased.hides(plan.topic, plan.schema.keys)
        if hides is None:
            return False
        return hides(RecordCodec.of_keys(plan.schema.keys).encode_key(self._ordered(plan, key)) or b"")

    def has_inputs(self, dataset: str) -> bool:
        """Return True: a server computes all aggregations; see `Histories`."""
        del dataset
        return True

    def inputs(self, dataset: str, key: Key) -> Inputs:
        """Return the inputs of a group; see `Histories`."""
        plan = self._indexes[dataset]
        frame, positions = self._frame(plan, key)
        has_ends = (frame[OP] == DELETE).any()
        if has_ends:
            frame = held(plan, frame)
        max_event_time_us = _greatest(frame, plan)
        if has_ends:
            frame = frame.filter(pl.col(END) > pl.col(TIME))
        along = [plan.schema.timestamp] if plan.along else []
        frame = self._of_key(plan, frame, key).sort(TIME, *along, ORDER)
        return Inputs(FrameParts(frame, _types(plan), plan.topic, positions), max_event_time_us)

    def versions(self, dataset: str, key: Key) -> Sequence[Held]:
        """Return the versions of a key; see `Histories`."""
        plan = self._indexes[dataset]
        frame, positions = self._frame(plan, key)
        frame = self._of_key(plan, frame, key).sort(TIME, ORDER)
        parts = FrameParts(frame, _types(plan), plan.topic, positions)
        return [parts.held(place) for place in range(frame.height)]

    def sources(self, dataset: str, records: Sequence[Held]) -> Sequence[Source | None]:
        """Return the source records of records; see `Histories`."""
        return self._sources.of(dataset, records, self)

    def _frame(self, plan: IndexPlan, key: Key) -> tuple[pl.DataFrame, list[str]]:
        """Return the settled records of an index that a key needs, and the columns of their positions."""
        topic = self._topics[plan.topic]
        wanted = columns_needed(plan, [column.name for column in plan.schema.columns])
        found = self._records.of(plan.dataset, [key]).records(topic, wanted)
        columns = found.columns
        if found.rows.height > MAX_RECORDS:
            raise InvalidInputError(
                f"{plan.dataset} has {found.rows.height:,} records that this value may depend on, and at most "
                f"{MAX_RECORDS:,} are explained"
            )
        positions = [columns.partition, columns.offset, columns.number]
        return settled(index_frame(plan, found, positions, numbers=False)), positions

    def _of_key(self, plan: IndexPlan, frame: pl.DataFrame, key: Key) -> pl.DataFrame:
        groups = Groups(plan.schema.keys)
        numbers = groups.add(frame)
        asked = groups.find([self._ordered(plan, key)])
        return frame.filter(pl.Series((numbers == asked[0]) & (asked[0] != MISSING), dtype=pl.Boolean))

    def _ordered(self, plan: IndexPlan, key: Key) -> Key:
        """Return a key, whose parts are in the order of the dataset's fields, in the order of the records' keys."""
        fields = [field.name for field in plan.fields if field.name in {part.name for part in plan.schema.keys}]
        return tuple(key[fields.index(part.name)] for part in plan.schema.keys)


def _types(plan: IndexPlan) -> dict[str, DataType]:
    types = {column.name: column.dtype for column in plan.schema.columns}
    return types | ({} if plan.schema.timestamp in types else {plan.schema.timestamp: DATETIME})


def _greatest(frame: pl.DataFrame, plan: IndexPlan) -> int:
    times: list[Any] = [frame[TIME].max()]
    if END in frame.columns and not plan.along and plan.window is None:
        times.append(frame.filter(pl.col(END) < NEVER)[END].max())
    if plan.by_clock:
        times.append(time.time_ns() // 1000)
    return max((time_us for time_us in times if isinstance(time_us, int)), default=0)
