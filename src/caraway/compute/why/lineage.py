"""The way of rows through pipelines: the in-process engine's operators, with the source record of each row.

Every operator is that of the engine. This module only finds out which row of its output was made of which row of its
input, and which versions joins have met.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from caraway.compute.reference.operators.columns import elements
from caraway.compute.reference.operators.joins import in_order_of, pieces
from caraway.compute.reference.operators.streams import union
from caraway.compute.reference.pipelines import compile_join, compile_step
from caraway.compute.reference.tables import Row, Table, Version, begin_of, key_of
from caraway.graph import operators as ops
from caraway.graph.plan.steps import text_of
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True)
class Meeting:
    """A version that a join met, or didn't."""

    dataset: str
    key: Row
    at_us: int
    version: Version | None
    near: Version | None = None
    low_us: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of a source, or of a dataset whose own way isn't followed, from which a row was made.

    Attributes:
        dataset: The dataset.
        version: The record.
        steps: The steps on the way, the first one first.
        joins: The versions that joins have met.
        note: Why the way isn't known to its begin.
    """

    dataset: str
    version: Version
    steps: tuple[str, ...] = ()
    joins: tuple[Meeting, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """A table, and the origin of each of its versions."""

    table: Table
    origins: Sequence[Origin]


# Returns a dataset with its origins.
Read = Callable[[str], Traced]


def traced(operator: ops.Operator, datasets: Mapping[str, DatasetSpec], read: Read) -> Traced:
    """Return the output of an operator tree with its origins.

    Args:
        operator: The tree.
        datasets: The datasets that it reads.
        read: Returns one of them.
    """
    match operator:
        case ops.Input(dataset=name):
            return read(name)
        case ops.Union():
            sides = [traced(side, datasets, read) for side in (operator.left, operator.right)]
            pairs = [pair for side in sides for pair in zip(side.table.versions, side.origins, strict=True)]
            table = union(sides[0].table, sides[1].table)
            return Traced(table, [origin for _, origin in sorted(pairs, key=lambda pair: pair[0].begin_us)])
        case ops.Join():
            return _joined(operator, traced(operator.left, datasets, read), datasets, read)
        case _:
            before = traced(operator.of, datasets, read)
            table = compile_step(operator, schema_of(operator.of, datasets))(before.table)
            text = text_of(operator)
            return Traced(table, [_further(origin, text) for origin in _origins(operator, before, table)])


def _further(origin: Origin, text: str) -> Origin:
    return replace(origin, steps=(*origin.steps, text))


def _origins(operator: ops.Operator, before: Traced, table: Table) -> Sequence[Origin]:
    """Return the origins of the versions of an operator's output."""
    versions = before.table.versions
    if isinstance(operator, ops.RowByRow):
        known = dict(zip(map(id, versions), before.origins, strict=True))
        if all(id(version) in known for version in table.versions):
            return [known[id(version)] for version in table.versions]
        return [origin for origin, _ in zip(before.origins, table.versions, strict=True)]
    match operator:
        case ops.Latest():
            known = {id(version.row): origin for version, origin in zip(versions, before.origins, strict=True)}
            return [known[id(version.row)] for version in table.versions]
        case ops.Explode():
            pairs = zip(versions, before.origins, strict=True)
            return [origin for version, origin in pairs for _ in elements(version.row, operator.columns)]
        case ops.Changelog():
            return _changes(versions, before.origins)
        case ops.Aggregate():
            return [_of_aggregate(operator, version) for version in table.versions]
        case ops.Input() | ops.Union() | ops.Join():
            raise TypeError(f"{type(operator).__name__} doesn't have exactly one input")


def _changes(versions: Sequence[Version], origins: Sequence[Origin]) -> Sequence[Origin]:
    pairs = list(zip(versions, origins, strict=True))
    changes = [(version.begin_us, origin) for version, origin in pairs]
    changes += [(version.end_us, origin) for version, origin in pairs if version.end_us is not None]
    return [origin for _, origin in sorted(changes, key=itemgetter(0))]


def _of_aggregate(operator: ops.Aggregate, version: Version) -> Origin:
    key = ", ".join(f"{name} = {version.row[name]!r}" for name in operator.keys)
    note = f"it is a row of an aggregation, for {key}; ask why of the aggregation to see what it was computed from"
    return Origin("", version, note=note)


def _joined(operator: ops.Join, left: Traced, datasets: Mapping[str, DatasetSpec], read: Read) -> Traced:
    right = read(operator.right).table
    right_keys = datasets[operator.right].keys
    schema = schema_of(operator.left, datasets)
    left_on = in_order_of(right_keys, operator)
    table = compile_join(operator, datasets)(left.table, right)
    made = _events(operator, left, right, left_on) if not schema.keys else _tables(operator, left, right, left_on)
    origins = []
    for origin, meeting in made:
        met = replace(meeting, key={name: meeting.key[on] for name, on in zip(right_keys, left_on, strict=True)})
        origins.append(replace(_further(origin, text_of(operator)), joins=(*origin.joins, met)))
    return Traced(table, origins)


def _events(operator: ops.Join, left: Traced, right: Table, left_on: Sequence[str]) -> Iterator[tuple[Origin, Meeting]]:
    for (row, time_us, _), origin in zip(left.table.versions, left.origins, strict=True):
        at_us, low_us = time_us + operator.within_high_us, operator.within_low_us
        found = right.find_all([(key_of(row, left_on), at_us)])[0]
        earliest = None if low_us is None else time_us - low_us
        match = None if found is not None and earliest is not None and found.begin_us < earliest else found
        if match is not None or operator.how is ops.JoinKind.LEFT:
            yield origin, Meeting(operator.right, row, at_us, match, found, earliest)


def _tables(operator: ops.Join, left: Traced, right: Table, left_on: Sequence[str]) -> Iterator[tuple[Origin, Meeting]]:
    made = []
    for version, origin in zip(left.table.versions, left.origins, strict=True):
        for begin_us, end_us, match in pieces(version, right.by_key.get(key_of(version.row, left_on), ())):
            if match is not None or operator.how is ops.JoinKind.LEFT:
                piece = Version(version.row, begin_us, end_us)
                made.append((piece, (origin, Meeting(operator.right, version.row, begin_us, match, match))))
    for _, pair in sorted(made, key=lambda item: begin_of(item[0])):
        yield pair


class Tracer:
    """Datasets with the origins of their rows, each computed when it is first asked for."""

    def __init__(
        self,
        datasets: Mapping[str, DatasetSpec],
        table_of: Callable[[str], Table],
        follows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Trace datasets.

        Args:
            datasets: All datasets of the graph.
            table_of: Returns the content of a dataset whose pipeline isn't followed, or that has none.
            follows: Returns whether the pipeline of a dataset is followed.
        """
        self.datasets = datasets
        self._table_of = table_of
        self._follows = follows
        self._known: dict[str, Traced] = {}

    def of(self, name: str) -> Traced:
        """Return a dataset with the origins of its rows."""
        if name not in self._known:
            self._known[name] = self._traced(name)
        return self._known[name]

    def _traced(self, name: str) -> Traced:
        spec = self.datasets[name]
        if not spec.pipelines or not self._follows(name):
            table = self._table_of(name)
            return Traced(table, [Origin(name, version) for version in table.versions])
        operator = spec.pipelines[0].operator
        found = traced(operator, self.datasets, self.of)
        table = found.table.keyed_by(spec.keys)
        if isinstance(operator, ops.Aggregate):
            return Traced(table, [_of_aggregate(operator, version) for version in table.versions])
        return Traced(table, found.origins)
