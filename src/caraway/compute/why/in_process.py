"""The records of datasets in the in-process engine, for explanations."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from caraway.compute.reference.engine import LocalEngine
from caraway.compute.reference.tables import Version, key_of
from caraway.compute.why.lineage import Origin, Traced, Tracer, traced
from caraway.compute.why.lookups import aggregation_of
from caraway.compute.why.model import Source
from caraway.compute.why.parts import Held, HeldParts, Hidden, Histories, Inputs, Key, all_shown
from caraway.compute.why.sources import source_of
from caraway.compute.why.windows import NEVER
from caraway.graph.operators import Aggregate
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec


class EngineHistories(Histories):
    """The records of an in-process engine as it is now. They have no positions and no times of ingestion."""

    def __init__(self, engine: LocalEngine, datasets: Mapping[str, DatasetSpec], hidden: Hidden = all_shown) -> None:
        """Read the datasets of `engine`."""
        self._engine = engine
        self._datasets = datasets
        self._hidden = hidden
        self._groups: dict[str, tuple[dict[Key, list[Held]], int]] = {}

    @cached_property
    def _tracer(self) -> Tracer:
        return Tracer(self._datasets, self._engine.table, self._engine.is_computed)

    def erased(self, dataset: str, key: Key) -> bool:
        """Return whether a key is erased; see `Histories`."""
        return self._engine.hides(dataset, dict(zip(self._datasets[dataset].keys, key, strict=True)))

    def has_inputs(self, dataset: str) -> bool:
        """Return whether the rows of an aggregation are computed; see `Histories`."""
        return self._engine.is_computed(dataset)

    def inputs(self, dataset: str, key: Key) -> Inputs:
        """Return the inputs of a group; see `Histories`."""
        if dataset not in self._groups:
            self._groups[dataset] = self._grouped(dataset)
        groups, max_event_time_us = self._groups[dataset]
        spec = self._datasets[dataset]
        operator = _aggregation(spec)
        names = [name for name in spec.keys if name in operator.keys]
        parts = dict(zip(names, key, strict=True))
        return Inputs(HeldParts(groups.get(key_of(parts, operator.keys), [])), max_event_time_us)

    def versions(self, dataset: str, key: Key) -> Sequence[Held]:
        """Return the versions of a key; see `Histories`. A version that a delete ends is followed by that delete."""
        spec = self._datasets[dataset]
        found = self._tracer.of(dataset)
        wanted = key_of(dict(zip(spec.keys, key, strict=True)), spec.keys)
        own = [
            (version, origin)
            for version, origin in zip(found.table.versions, found.origins, strict=True)
            if key_of(version.row, spec.keys) == wanted
        ]
        records: list[Held] = []
        for place, (version, origin) in enumerate(own):
            records.append(_held(version, origin))
            following = own[place + 1][0].begin_us if place + 1 < len(own) else None
            if version.end_us is not None and version.end_us != following:
                row = {name: version.row[name] for name in spec.keys}
                records.append(Held(time_us=version.end_us, row=row, deleted=True))
        return records

    def sources(self, dataset: str, records: Sequence[Held]) -> Sequence[Source | None]:
        """Return the source records of records; see `Histories`."""
        return [self._source(dataset, record.origin) for record in records]

    def _source(self, dataset: str, origin: object) -> Source | None:
        if not isinstance(origin, Origin):
            return None
        found = source_of(dataset, origin, self._datasets, self._hidden)
        if found is not None and origin.dataset and self._engine.hides(origin.dataset, origin.version.row):
            return replace(found, row=None, hidden="the key of the source record is erased")
        return found

    def _grouped(self, dataset: str) -> tuple[dict[Key, list[Held]], int]:
        """Return the inputs of all groups of an aggregation, and the time up to which its windows are closed."""
        operator = _aggregation(self._datasets[dataset])
        found = traced(operator.of, self._datasets, self._tracer.of)
        timestamp = schema_of(operator.of, self._datasets).timestamp
        records = _placed(found, operator.along or timestamp)
        groups: dict[Key, list[Held]] = {}
        for record in records:
            groups.setdefault(key_of(record.row, operator.keys), []).append(record)
        times = [record.time_us for record in records]
        if operator.along is None and operator.window is None:
            times += [record.end_us for record in records if record.end_us != NEVER]
        if operator.by_clock:
            times.append(self._engine.now_us())
        return groups, max(times, default=0)


def _placed(found: Traced, along: str) -> list[Held]:
    records = []
    for version, origin in zip(found.table.versions, found.origins, strict=True):
        time_us = version.row[along]
        if not isinstance(time_us, int):
            raise TypeError(f"{along} holds {time_us!r}, which is no instant")
        records.append(_held(version, origin, time_us))
    return sorted(records, key=lambda record: record.time_us)


def _held(version: Version, origin: Origin, time_us: int | None = None) -> Held:
    return Held(
        time_us=version.begin_us if time_us is None else time_us,
        row=version.row,
        end_us=NEVER if version.end_us is None else version.end_us,
        origin=origin,
    )


def _aggregation(spec: DatasetSpec) -> Aggregate:
    found = aggregation_of(spec)
    if found is None:
        raise TypeError(f"dataset {spec.name} is no aggregation")
    return found
