"""The source records of explanations, from the topics of sources, and the way that they took through pipelines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_attributes
from typing import Protocol

from msgspec.structs import replace

from caraway.compute.reference.tables import Key, Relation, Row, Table, Version, holding
from caraway.compute.why.lineage import Origin, Tracer, traced
from caraway.compute.why.lookups import aggregation_of
from caraway.compute.why.model import Position, Source, shown_time
from caraway.compute.why.parts import Held, Hidden, Histories
from caraway.compute.why.sources import shown, source_of
from caraway.compute.why.windows import NEVER
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import CarawayError
from caraway.graph import operators as ops
from caraway.graph.plan.model import GraphPlan, RecordSchema
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import with_parents
from caraway.offline.why.identities import Root, root_of

GONE = "the source record isn't there any more: it was erased, or neither its topic nor the archive has kept it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A record on a topic.

    Attributes:
        time_us: Its event time.
        ingested_us: The time of its ingestion.
        row: Its columns in stored form, with the timestamp.
        mark: The text that the reader of the source wrote beside it.
    """

    time_us: int
    ingested_us: int
    row: Row
    mark: str | None = None


# The place of a record: partition, offset, and its number in the message.
Place = tuple[int, int, int]


class Messages(Protocol):
    """The records of topics by their places."""

    def at(self, topic: str, schema: RecordSchema, places: Iterable[Place]) -> Mapping[Place, Found]:
        """Return the records at some places, as far as they are there.

        Args:
            topic: The topic.
            schema: The schema of its records.
            places: The places.
        """
        ...


class SourceRecords:
    """Finds the source records of records. Not thread safe."""

    def __init__(
        self,
        plan: GraphPlan,
        datasets: Mapping[str, DatasetSpec],
        messages: Messages,
        erased: ErasedKeys,
        hidden: Hidden,
    ) -> None:
        """Find records.

        Args:
            plan: The plan of the graph.
            datasets: Its datasets.
            messages: The records of topics.
            erased: The keys without rows.
            hidden: Returns why a dataset, or a field of one, isn't shown.
        """
        self._indexes = {index.dataset: index for index in plan.indexes}
        self._topics = {topic.dataset: topic for topic in plan.topics}
        self._datasets = datasets
        self._messages = messages
        self._erased = erased
        self._hidden = hidden

    def of(self, dataset: str, records: Sequence[Held], histories: Histories) -> list[Source | None]:
        """Return the source records of some records of a dataset."""
        roots: list[Root | str] = []
        for record in records:
            identity = getattr(record.origin, "identity", None)
            found = root_of(dataset, identity, self._datasets) if identity else GONE
            roots.append(found)
        known = self._found([root for root in roots if isinstance(root, Root)])
        return [
            self._source(dataset, record, root, known, histories) for record, root in zip(records, roots, strict=True)
        ]

    def _found(self, roots: Sequence[Root]) -> dict[tuple[str, Place], Found]:
        found: dict[tuple[str, Place], Found] = {}
        for dataset in dict.fromkeys(root.dataset for root in roots):
            topic = self._topics[dataset]
            places = {_place(root) for root in roots if root.dataset == dataset}
            for place, record in self._messages.at(topic.name, topic.schema, places).items():
                if not self._is_erased(dataset, record):
                    found[dataset, place] = record
        return found

    def _is_erased(self, dataset: str, record: Found) -> bool:
        topic = self._topics[dataset]
        hides = self._erased.hides_record(topic.name, topic.schema)
        if hides is None:
            return False
        key = RecordCodec.of_keys(topic.schema.keys).encode_key([record.row[part.name] for part in topic.schema.keys])
        by_key = hides.key is not None and key is not None and hides.key(key)
        row = [record.row[column.name] for column in topic.schema.columns]
        return by_key or (hides.row is not None and hides.row(row))

    def _source(
        self,
        dataset: str,
        record: Held,
        root: Root | str,
        known: Mapping[tuple[str, Place], Found],
        histories: Histories,
    ) -> Source | None:
        if isinstance(root, str):
            return Source(note=root)
        found = known.get((root.dataset, _place(root)))
        position = Position(
            topic=self._topics[root.dataset].name, partition=root.partition, offset=root.offset, number=root.number
        )
        if root.dataset == dataset:
            mark = None if found is None else found.mark
            return None if mark is None else Source(dataset=dataset, position=position, mark=mark)
        told = Source(dataset=root.dataset, position=position)
        if found is None:
            return replace(told, hidden=GONE)
        way = self._way(dataset, record, root, found, histories)
        row, reason = shown(root.dataset, found.row, self._datasets, self._hidden)
        return replace(
            told,
            row=row,
            hidden=reason,
            event_time=shown_time(found.time_us),
            ingested=shown_time(found.ingested_us),
            mark=found.mark,
            steps=way.steps,
            joins=way.joins,
            note=way.note,
        )

    def _way(self, dataset: str, record: Held, root: Root, found: Found, histories: Histories) -> Source:
        """Return the steps that a source record took to become a record of a dataset, and the versions that it met.

        The record alone is put through the pipelines once more. The result must be the record.
        """
        path = {name: _safe(self._datasets[name]) for name in root.path}
        missing = [name for name, spec in path.items() if spec is None]
        if missing:
            return Source(note=f"the pipeline of {missing[0]} calls functions, which aren't called again for this")
        specs = {**self._datasets, **{name: spec for name, spec in path.items() if spec is not None}}
        start = Relation(specs[root.dataset].keys, [Version(dict(found.row), found.time_us, None)])

        def table_of(name: str) -> Table:
            return start if name == root.dataset else KeyTable(name, self._datasets[name], histories)

        try:
            tracer = Tracer(specs, table_of, lambda name: name in path)
            operator = specs[dataset].pipelines[0].operator
            last = operator.of if isinstance(operator, ops.Aggregate) else operator
            made = traced(last, specs, tracer.of)
            for version, origin in zip(made.table.versions, made.origins, strict=True):
                if _is_of(record, version.row):
                    return _told(dataset, origin, self._datasets, self._hidden)
        except (CarawayError, UntraceableError) as error:
            return Source(note=f"its way can't be followed: {error}")
        return Source(
            note="put through the pipeline by itself, the source record gives another row: it depends on other rows"
        )


def _told(dataset: str, origin: Origin, datasets: Mapping[str, DatasetSpec], hidden: Hidden) -> Source:
    return source_of(dataset, origin, datasets, hidden) or Source()


def _is_of(record: Held, row: Row) -> bool:
    names = [name for name in record.row if name in row]
    return all(repr(record.row[name]) == repr(row[name]) for name in names)


def _place(root: Root) -> Place:
    return root.partition, root.offset, root.number


class UntraceableError(Exception):
    """A row's way can't be followed."""


class KeyTable:
    """A dataset on the right side of a join, of which only the keys that are asked for are read."""

    def __init__(self, dataset: str, spec: DatasetSpec, histories: Histories) -> None:
        """Read a dataset of `histories`."""
        self._dataset = dataset
        self._spec = spec
        self._histories = histories

    @property
    def by_key(self) -> Mapping[Key, Sequence[Version]]:
        """Return the versions of keys, which are read when they are asked for."""
        return _ByKey(self)

    @property
    def empty(self) -> bool:
        """Return False: it isn't known."""
        return False

    @property
    def versions(self) -> Sequence[Version]:
        """Return nothing: only keys are read."""
        return ()

    def find_all(self, asked: Sequence[tuple[Key, int]]) -> list[Version | None]:
        """Return for each key and time the version that holds then."""
        return [holding(self.of_key(key), at_us) for key, at_us in asked]

    def keyed_by(self, keys: Sequence[str]) -> "KeyTable":
        """Return this table: joins ask for keys in the order of the dataset."""
        del keys
        return self

    def of_key(self, key: Key) -> list[Version]:
        """Return the versions of a key."""
        if aggregation_of(self._spec) is not None:
            raise UntraceableError(f"{self._dataset}, which it is joined with, is an aggregation")
        found: list[Version] = []
        records = self._histories.versions(self._dataset, key)
        for place, record in enumerate(records):
            end_us = records[place + 1].time_us if place + 1 < len(records) else NEVER
            if not record.deleted and record.time_us < end_us:
                found.append(Version(dict(record.row), record.time_us, None if end_us == NEVER else end_us))
        return found


class _ByKey(Mapping[Key, Sequence[Version]]):
    """The versions of keys, read when they are asked for."""

    def __init__(self, table: KeyTable) -> None:
        self._table = table

    def __getitem__(self, key: Key) -> Sequence[Version]:
        return self._table.of_key(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _safe(spec: DatasetSpec) -> DatasetSpec | None:
    """Return a dataset whose pipeline has the expressions of users' functions; None if it has other functions.

    Users' functions run in processes of their own only, and this isn't one.
    """
    pipeline = spec.pipelines[0]
    operator = _traced(pipeline.operator)
    if operator is None:
        return None
    changed = with_attributes(pipeline, operator=operator)
    return with_attributes(spec, pipelines=(changed,))


def _traced(operator: ops.Operator) -> ops.Operator | None:
    fails: list[ops.Operator] = []

    def change(inner: ops.Operator) -> ops.Operator:
        made = with_parents(inner, change)
        match made:
            case ops.FilterFunction(of=of, traced=node) if node is not None:
                return ops.Filter(of=of, predicate=node)
            case ops.AssignFunction(of=of, column=name, dtype=dtype, traced=node) if node is not None:
                return ops.Assign(of=of, columns=(ops.AssignedColumn(name=name, dtype=dtype, expr=node),))
            case ops.FilterFunction() | ops.AssignFunction() | ops.Transform():
                fails.append(made)
        return made

    found = change(operator)
    return None if fails else found
