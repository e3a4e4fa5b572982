"""The columns that each output column of a pipeline is computed from, as far as the operators show it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from caraway.expr.nodes import Node
from caraway.expr.references import columns_of
from caraway.graph import operators as ops
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.specs import DatasetSpec

# The columns, as pairs of dataset and column, from which a value is computed. None if a user's function computes the
# value from whole rows, since the columns that the function reads are then unknown.
Origins = frozenset[tuple[str, str]] | None
NOTHING: Origins = frozenset()


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns behind a step: the origins of each, and those that no user's function can change (keys and time)."""

    origins: Mapping[str, Origins]
    fixed: frozenset[str]
    timestamp: str


def column_origins(operator: ops.Operator, datasets: Mapping[str, DatasetSpec]) -> Mapping[str, Origins]:
    """Return the columns of datasets that each column of an operator tree's output is computed from.

    A column that decides only which rows there are, such as that of a filter, isn't an origin. A count without a column
    has no origins. The origins are None if a user's function computes the column from whole rows.

    Args:
        operator: The tree.
        datasets: The datasets by name. A dataset that is missing here adds no origins.
    """
    return _of(operator, datasets).origins


def _of(operator: ops.Operator, datasets: Mapping[str, DatasetSpec]) -> _Columns:
    match operator:
        case ops.Input():
            return _input(operator.dataset, datasets)
        case ops.Filter() | ops.FilterFunction() | ops.DropNull() | ops.Explode() | ops.Dedup():
            return _of(operator.of, datasets)
        case ops.First() | ops.Latest():
            before = _of(operator.of, datasets)
            return _Columns(before.origins, frozenset((*operator.keys, before.timestamp)), before.timestamp)
        case ops.Assign() | ops.AssignFunction() | ops.Transform():
            return _computed(operator, _of(operator.of, datasets))
        case ops.Select():
            before = _of(operator.of, datasets)
            return _only(before, before.fixed.union(operator.columns))
        case ops.Drop():
            before = _of(operator.of, datasets)
            return _only(before, before.origins.keys() - set(operator.columns))
        case ops.Rename():
            return _renamed(_of(operator.of, datasets), operator.pairs)
        case ops.Union():
            return _union(_of(operator.left, datasets), _of(operator.right, datasets))
        case ops.Join():
            before = _of(operator.left, datasets)
            right = _input(operator.right, datasets).origins
            added = {field: right.get(field, NOTHING) for field in operator.fields}
            return _Columns({**before.origins, **added}, before.fixed, before.timestamp)
        case ops.Aggregate():
            return _aggregated(operator, _of(operator.of, datasets))
        case ops.Changelog():
            before = _of(operator.of, datasets)
            marked = {**before.origins, operator.column: NOTHING}
            return _Columns(marked, frozenset({before.timestamp}), before.timestamp)
        case _:
            assert_never(operator)


def _input(name: str, datasets: Mapping[str, DatasetSpec]) -> _Columns:
    spec = datasets.get(name)
    if spec is None:
        return _Columns({}, frozenset(), "")
    origins: dict[str, Origins] = {field.name: frozenset({(name, field.name)}) for field in spec.fields}
    return _Columns(origins, frozenset((*spec.keys, spec.timestamp)), spec.timestamp)


def _computed(operator: ops.Assign | ops.AssignFunction | ops.Transform, before: _Columns) -> _Columns:
    match operator:
        case ops.Assign():
            made = {column.name: _read(column.expr, before) for column in operator.columns}
        case ops.AssignFunction():
            made = {operator.column: None if operator.traced is None else _read(operator.traced, before)}
        case ops.Transform():
            names = before.origins if operator.columns is None else [name for name, _ in operator.columns]
            kept = {name: before.origins.get(name) for name in names if name in before.fixed}
            return _Columns({name: kept.get(name) for name in names}, before.fixed, before.timestamp)
        case _:
            assert_never(operator)
    return _Columns({**before.origins, **made}, before.fixed, before.timestamp)


def _read(node: Node, before: _Columns) -> Origins:
    return _together(before.origins.get(name, NOTHING) for name in columns_of(node))


def _renamed(before: _Columns, pairs: Iterable[tuple[str, str]]) -> _Columns:
    origins, fixed, timestamp = dict(before.origins), before.fixed, before.timestamp
    for old, new in pairs:
        if old in origins:
            origins[new] = origins.pop(old)
        if old in fixed:
            fixed = fixed - {old} | {new}
        timestamp = new if timestamp == old else timestamp
    return _Columns(origins, fixed, timestamp)


def _union(left: _Columns, right: _Columns) -> _Columns:
    names = dict.fromkeys((*left.origins, *right.origins))
    both = {name: _together((left.origins.get(name, NOTHING), right.origins.get(name, NOTHING))) for name in names}
    return _Columns(both, left.fixed, left.timestamp)


def _aggregated(operator: ops.Aggregate, before: _Columns) -> _Columns:
    time = before.origins.get(operator.along or before.timestamp, NOTHING)
    origins = {key: before.origins.get(key, NOTHING) for key in operator.keys}
    if operator.window is not None:
        origins[WINDOW_KEY] = time
    for aggregate in operator.aggregates:
        origins[aggregate.into] = NOTHING if aggregate.of is None else before.origins.get(aggregate.of, NOTHING)
    timestamp = before.timestamp
    origins[timestamp] = time
    return _Columns(origins, frozenset((*operator.keys, WINDOW_KEY, timestamp)), timestamp)


def _only(before: _Columns, names: Iterable[str]) -> _Columns:
    wanted = set(names)
    origins = {name: found for name, found in before.origins.items() if name in wanted}
    return _Columns(origins, before.fixed, before.timestamp)


def _together(origins: Iterable[Origins]) -> Origins:
    found: frozenset[tuple[str, str]] = frozenset()
    for one in origins:
        if one is None:
            return None
        found |= one
    return found
