"""Operator trees to streams (docs/records.md says what each step does with op, id and rev)."""

from dataclasses import replace
from functools import singledispatch

from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import DATETIME
from caraway.graph.operators import Aggregate, Assign, Drop, Filter, Input, Join, Latest, Rename, Select
from caraway.spark.codec import DELETE, OP, PUT, SIDE, TIME, VOID, name
from caraway.spark.expressions import compile_as, compile_node
from caraway.spark.inputs import OWN, Inputs
from caraway.spark.stateful import as_of_join, keyed_changelog
from caraway.spark.stream import Stream


@singledispatch
def compile_step(step: object, inputs: Inputs) -> Stream:
    """Compile an operator tree, which has been validated, to the stream of its output."""
    raise TypeError(f"no Spark step for {type(step).__name__} of job {inputs.job_id}")


@compile_step.register
def _(step: Input, inputs: Inputs) -> Stream:
    return inputs.read(step.dataset)


@compile_step.register
def _(step: Filter, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    # The row of a void or delete may be null, and such a record passes anyway.
    passes = F.coalesce(compile_node(step.predicate, before.scope()), F.lit(False))  # noqa: FBT003 (a value)
    if before.passengers:
        passes = passes | (name(SIDE) != OWN)
    if not before.keys and not before.revised:
        return replace(before, frame=before.frame.filter(passes))
    failed = DELETE if before.keys else VOID
    op = F.when((name(OP) == PUT) & ~passes, F.lit(failed)).otherwise(name(OP))
    return replace(before, frame=before.frame.withColumn(OP, op))


@compile_step.register
def _(step: Assign, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    scope = before.scope()
    assigned = {column.name: column for column in step.columns}
    kept = [name(column) for column in before.columns if column not in assigned]
    new = [compile_as(column.expr, column.dtype, scope).alias(column.name) for column in step.columns]
    types = {**before.columns, **{column.name: column.dtype for column in step.columns}}
    return replace(before, frame=before.frame.select(*before.meta(), *kept, *new), columns=types)


@compile_step.register
def _(step: Select, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    return _keep(before, {*before.keys, *step.columns})


@compile_step.register
def _(step: Drop, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    return _keep(before, {*before.columns} - {*step.columns})


@compile_step.register
def _(step: Rename, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    new = {column: column for column in (*before.columns, before.timestamp)}
    for old, renamed in step.pairs:
        # Pairs hold one after the other, so a later one sees the names that an earlier one gave.
        new = {column: renamed if current == old else current for column, current in new.items()}
    renamed_columns = [name(column).alias(new[column]) for column in before.columns]
    return replace(
        before,
        frame=before.frame.select(*before.meta(), *renamed_columns),
        keys=tuple(new[key] for key in before.keys),
        columns={new[column]: dtype for column, dtype in before.columns.items()},
        timestamp=new[before.timestamp],
    )


@compile_step.register
def _(step: Join, inputs: Inputs) -> Stream:
    left = compile_step(step.left, inputs)
    return as_of_join(left, inputs.topics[step.right], step, inputs)


@compile_step.register
def _(step: Latest, inputs: Inputs) -> Stream:
    # Each row is a version of its group from its time on, and the newest version of a key is what a reader finds.
    return replace(compile_step(step.of, inputs), keys=step.keys)


@compile_step.register
def _(step: Aggregate, inputs: Inputs) -> Stream:
    before = compile_step(step.of, inputs)
    if before.keys:
        before = keyed_changelog(before, inputs)
    used = {a.of for a in step.aggregates if a.of is not None}
    if step.along is not None:
        before = _placed(before, step.along)
        used.add(before.timestamp)
    return replace(_keep(before, {*step.keys, *used}), keys=step.keys)


def _placed(before: Stream, along: str) -> Stream:
    """Place rows on the axis of time by a column; the time stamp becomes a column, which ranks rows of equal times."""
    time = F.when(name(OP) == PUT, name(along)).otherwise(name(TIME))
    frame = before.frame.withColumn(before.timestamp, name(TIME)).withColumn(TIME, time)
    return replace(before, frame=frame, columns={**before.columns, before.timestamp: DATETIME})


def _keep(before: Stream, columns: set[str]) -> Stream:
    kept = {column: dtype for column, dtype in before.columns.items() if column in columns}
    frame = before.frame.select(*before.meta(), *(name(column) for column in kept))
    return replace(before, frame=frame, columns=kept)
