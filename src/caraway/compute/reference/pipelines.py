"""The compilation of pipelines to functions of the datasets that they read."""

from collections.abc import Callable, Mapping, Sequence

from caraway.compute.reference.aggregates.grouping import Clock, compile_aggregate, present_us
from caraway.compute.reference.operators.columns import drop_null, explode, only, rename
from caraway.compute.reference.operators.functions import (
    compile_assign_function,
    compile_filter_function,
    compile_transform,
)
from caraway.compute.reference.operators.joins import join_events, join_tables
from caraway.compute.reference.operators.streams import changelog, dedup, first, latest, union
from caraway.compute.reference.tables import Table
from caraway.errors import InvalidInputError
from caraway.graph import operators as ops
from caraway.graph.schemas import Schema, schema_of
from caraway.graph.specs import DatasetSpec, PipelineSpec

Read = Callable[[str], Table]
Run = Callable[[Read], Table]
Step = Callable[[Table], Table]


def compile_pipeline(
    spec: DatasetSpec, pipeline: PipelineSpec, datasets: Mapping[str, DatasetSpec], clock: Clock = present_us
) -> Run:
    """Return a pipeline as a function of the datasets' contents; `clock` closes windows that close by the clock.

    The function raises `InvalidInputError` with the dataset, pipeline and operator if a value doesn't fit or a user's
    function fails.
    """
    run = _compile(pipeline.operator, datasets, clock)

    def named(read: Read) -> Table:
        try:
            return run(read).keyed_by(spec.keys)
        except InvalidInputError as error:
            raise InvalidInputError(f"dataset {spec.name}, pipeline {pipeline.name}: {error}") from error

    return named


def _compile(operator: ops.Operator, datasets: Mapping[str, DatasetSpec], clock: Clock) -> Run:
    """Return an operator tree as a function of the datasets' contents."""
    match operator:
        case ops.Input(dataset=name):
            return lambda read: read(name)
        case ops.Union():
            left, right = (_compile(side, datasets, clock) for side in (operator.left, operator.right))
            return lambda read: union(left(read), right(read))
        case ops.Join():
            return _compile_join(operator, datasets, clock)
        case _:
            of = _compile(operator.of, datasets, clock)
            step = compile_step(operator, schema_of(operator.of, datasets), clock)
            return lambda read: step(of(read))


def _compile_join(operator: ops.Join, datasets: Mapping[str, DatasetSpec], clock: Clock) -> Run:
    left, join = _compile(operator.left, datasets, clock), compile_join(operator, datasets)
    return lambda read: join(left(read), read(operator.right))


def compile_join(operator: ops.Join, datasets: Mapping[str, DatasetSpec]) -> Callable[[Table, Table], Table]:
    """Return a join as a function of its left and its right input."""
    before = schema_of(operator.left, datasets)
    keys, right_keys, timestamp = tuple(before.keys), datasets[operator.right].keys, before.timestamp
    if not keys:
        return lambda left, right: join_events(operator, left, right, right_keys)
    return lambda left, right: join_tables(operator, left, right, keys=keys, right_keys=right_keys, timestamp=timestamp)


def compile_step(operator: ops.Operator, before: Schema, clock: Clock = present_us) -> Step:
    """Return an operator with one input as a function of that input; `before` is the schema of the input.

    The windows of an aggregate that close by the clock go by `clock`.
    """
    keys = tuple(before.keys)
    match operator:
        case ops.Filter() | ops.Assign():
            return _evaluating(operator, before)
        case ops.FilterFunction():
            return compile_filter_function(operator, before)
        case ops.AssignFunction():
            return compile_assign_function(operator, before)
        case ops.Transform():
            return compile_transform(operator, before)
        case ops.Aggregate():
            return compile_aggregate(operator, before, clock)
        case ops.Select():
            kept = tuple(dict.fromkeys((*keys, *operator.columns, before.timestamp)))
            return lambda table: only(table, keys, kept)
        case ops.Drop():
            left = tuple(name for name in before.columns if name not in operator.columns)
            return lambda table: only(table, keys, left)
        case ops.Rename():
            names = _renamed(tuple(before.columns), operator.pairs)
            new_keys = tuple(new for old, new in names if old in keys)
            return lambda table: rename(table, new_keys, names)
        case ops.DropNull():
            return lambda table: drop_null(table, keys, operator.columns)
        case ops.Explode():
            return lambda table: explode(table, operator.columns)
        case ops.Dedup():
            return lambda table: dedup(table, operator.by, operator.window)
        case ops.First():
            return lambda table: first(table, operator.keys)
        case ops.Latest():
            return lambda table: latest(table, operator.keys)
        case ops.Changelog():
            marks = operator.marks_inserts
            return lambda table: changelog(table, before.timestamp, operator.column, marks_inserts=marks)
        case ops.Input() | ops.Union() | ops.Join():
            raise TypeError(f"{type(operator).__name__} doesn't have exactly one input")


def _evaluating(operator: ops.Filter | ops.Assign, before: Schema) -> Step:
    # polars is imported late, because it takes longer to import than everything else that a pipeline without
    # expressions needs.
    from caraway.compute.reference.operators import expressions  # noqa: PLC0415

    if isinstance(operator, ops.Filter):
        return expressions.compile_filter(operator, before)
    return expressions.compile_assign(operator, before)


def _renamed(columns: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the old and the new name of each column, after applying the pairs one after the other."""
    names = {name: name for name in columns}
    for old, new in pairs:
        names = {first_name: new if name == old else name for first_name, name in names.items()}
    return list(names.items())
