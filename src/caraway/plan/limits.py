"""What the streaming engine can't run yet, refused before anything is planned; the in-process engine runs it all."""

from collections.abc import Iterator, Mapping

from caraway.dtypes.types import DecimalType, base_type, type_name
from caraway.errors import CommitError
from caraway.graph.operators import (
    Aggregate,
    AggregateFunction,
    AggregateSpec,
    AssignFunction,
    Changelog,
    Dedup,
    DropNull,
    Emit,
    Explode,
    FilterFunction,
    First,
    Join,
    Operator,
    Transform,
    Union,
)
from caraway.graph.schemas import Schema, schema_of
from caraway.graph.specs import DatasetSpec, PipelineSpec
from caraway.graph.trees import datasets_read, parents
from caraway.graph.windows import ContinuousWindow, print_window

# Over a table, whose rows replace each other: what can take a row back from sums alone.
REVERSIBLE = frozenset(
    {AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVERAGE, AggregateFunction.STDDEV}
)
_FUNCTIONS = REVERSIBLE | {AggregateFunction.MIN, AggregateFunction.MAX}

UNSUPPORTED: dict[type, str] = {
    FilterFunction: "filter by a Python function",
    AssignFunction: "assign by a Python function",
    Transform: "transform",
    DropNull: "dropnull",
    Explode: "explode",
    Union: "union",
    Dedup: "dedup",
    First: "first",
    Changelog: "changelog",
}


def require_streamable(spec: DatasetSpec, pipeline: PipelineSpec, specs: Mapping[str, DatasetSpec]) -> None:
    """Refuse a pipeline that the streaming engine can't run.

    Raises:
        CommitError: It has such a step; the message names it, the dataset and the pipeline.
    """
    for found in _unsupported(pipeline.operator, specs):
        raise CommitError(
            f"the streaming engine doesn't run {found} yet; dataset {spec.name}, pipeline {pipeline.name}"
        )


def _unsupported(operator: Operator, specs: Mapping[str, DatasetSpec]) -> Iterator[str]:
    for parent in parents(operator):
        yield from _unsupported(parent, specs)
    if type(operator) in UNSUPPORTED:
        yield f"`{UNSUPPORTED[type(operator)]}`"
    if isinstance(operator, Join):
        if schema_of(operator.left, specs).keys:
            yield f"`join` with {operator.right} from a keyed left side"
        if operator.right in datasets_read(operator.left):
            yield f"`join` of {operator.right} with itself"
    if isinstance(operator, Aggregate):
        yield from _of_aggregate(operator, schema_of(operator.of, specs))


def _of_aggregate(operator: Aggregate, before: Schema) -> Iterator[str]:
    if operator.window is not None:
        yield f"`groupby(window={print_window(operator.window)})`"
    if operator.along is not None:
        yield f"`aggregate(along={operator.along})`"
    if operator.emit is Emit.FINAL:
        yield '`aggregate(emit="final")`'
    for aggregate in operator.aggregates:
        yield from _of_column(aggregate, before)


def _of_column(aggregate: AggregateSpec, before: Schema) -> Iterator[str]:
    name = f"`{aggregate.function}` (column {aggregate.into})"
    if aggregate.function not in _FUNCTIONS:
        yield name
    if aggregate.unique or aggregate.dropnull:
        yield f"{name} of distinct values or without nulls"
    if not isinstance(aggregate.window, ContinuousWindow):
        yield f"{name} over a discrete window"
    elif before.keys and (aggregate.window.length_us is not None or aggregate.function not in REVERSIBLE):
        yield f"{name} over a table, other than count, sum, average and stddev over all time"
    if aggregate.of == before.timestamp:
        yield f"{name} of the timestamp"
    elif aggregate.of is not None and isinstance(base_type(before.columns[aggregate.of]), DecimalType):
        yield f"{name} of {type_name(before.columns[aggregate.of])} columns"
