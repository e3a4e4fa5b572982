"""The compilation of operator trees to streams; docs/inside/records.md says how each step treats op, id and rev."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce, singledispatch

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from caraway.dataplane.streams.spark.codec import DELETE, ID, META, OP, RETRACT, TIME, name
from caraway.dataplane.streams.spark.expressions import compile_as, compile_with_failure
from caraway.dataplane.streams.spark.functions import assigned, transformed, verdict
from caraway.dataplane.streams.spark.inputs import Inputs
from caraway.dataplane.streams.spark.letters import Reason, evaluate
from caraway.dataplane.streams.spark.stateful import aggregate_inputs, changelog, deduplicated, first, joined
from caraway.dataplane.streams.spark.stream import JobRows, Stream
from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes.types import BOOL, DATETIME, DataType, ListType, base_type, optional, strip_optional, type_name
from caraway.expr.nodes import Node
from caraway.expr.printer import print_node
from caraway.graph import operators as ops
from caraway.graph.plan.failing import can_fail

# Temporary columns. No Python identifier has a "$", so no user's column has one of these names.
_PASSES, _NUMBER, _ELEMENT = "$passes", "$number", "$element"


@singledispatch
def compile_step(step: object, inputs: Inputs, job_rows: JobRows) -> Stream:  # noqa: ARG001 (the same signature for all)
    """Compile an operator tree, which has been validated, to the stream of its output.

    `job_rows` are all rows of the job, before the first input of this tree is read from them.
    """
    raise TypeError(f"no Spark step for {type(step).__name__} of job {inputs.plan.job_id}")


@compile_step.register
def _(step: ops.Input, inputs: Inputs, job_rows: JobRows) -> Stream:  # noqa: ARG001 (the same signature for all)
    return inputs.take_in(job_rows)


@compile_step.register
def _(step: ops.Filter, inputs: Inputs, job_rows: JobRows) -> Stream:
    return _kept(compile_step(step.of, inputs, job_rows), step.predicate, inputs)


def _kept(before: Stream, predicate: Node, inputs: Inputs) -> Stream:
    passes, reasons = _expression(ops.AssignedColumn(name="", dtype=optional(BOOL), expr=predicate), before)
    return _filtered(evaluate(before, {_PASSES: passes}, reasons, "filter", inputs.plan))


@compile_step.register
def _(step: ops.FilterFunction, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    if step.traced is not None:
        return _kept(before, step.traced, inputs)
    return _filtered(verdict(step, before, inputs.plan, _PASSES))


@compile_step.register
def _(step: ops.DropNull, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    full = reduce(lambda a, b: a & b, (name(column).isNotNull() for column in step.columns))
    kept = _filtered(replace(before, frame=before.frame.select("*", full.alias(_PASSES))))
    return replace(kept, columns={c: strip_optional(t) if c in step.columns else t for c, t in kept.columns.items()})


def _filtered(before: Stream) -> Stream:
    """Return the rows whose column `$passes` is true, and all retractions and deletes, whose column may be null."""
    passes = F.coalesce(name(_PASSES), F.lit(False))
    columns = [name(column) for column in before.columns]
    if not before.keys and not before.revised:
        return replace(before, frame=before.frame.filter(passes | ~before.own()).select(*before.meta(), *columns))
    failed = DELETE if before.keys else RETRACT
    op = F.when(before.puts() & ~passes, F.lit(failed)).otherwise(name(OP)).alias(OP)
    meta = [op if part == OP else name(part) for part in (*META, *before.pass_through)]
    return replace(before, frame=before.frame.select(*meta, *columns))


@compile_step.register
def _(step: ops.Assign, inputs: Inputs, job_rows: JobRows) -> Stream:
    return _assigned(compile_step(step.of, inputs, job_rows), step.columns, inputs)


def _assigned(before: Stream, columns: Sequence[ops.AssignedColumn], inputs: Inputs) -> Stream:
    new: dict[str, Column] = {}
    reasons: list[Reason] = []
    for column in columns:
        new[f"${column.name}"], found = _expression(column, before)
        reasons += found
    computed = evaluate(before, new, reasons, "assign", inputs.plan)
    return _replaced(computed, {column.name: column.dtype for column in columns})


@compile_step.register
def _(step: ops.AssignFunction, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    if step.traced is not None:
        return _assigned(before, [ops.AssignedColumn(name=step.column, dtype=step.dtype, expr=step.traced)], inputs)
    computed = assigned(step, before, inputs.plan, f"${step.column}")
    return _replaced(computed, {step.column: step.dtype})


@compile_step.register
def _(step: ops.Transform, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    types = before.columns if step.columns is None else dict(step.columns)
    new = {c: t for c, t in types.items() if c not in before.keys and c != before.timestamp}
    computed = transformed(step, before, inputs.plan, new)
    kept = replace(computed, columns={key: computed.columns[key] for key in computed.keys})
    return _replaced(kept, new)


def _expression(column: ops.AssignedColumn, before: Stream) -> tuple[Column, list[Reason]]:
    """Return the value of an expression, and the ways in which it can fail."""
    scope = before.scope()
    if not can_fail(column.expr, column.dtype, before.types):
        return compile_as(column.expr, column.dtype, scope), []
    outcome = compile_with_failure(column.expr, column.dtype, scope)
    reason = Reason(failed=outcome.failed, field=column.name or None, message=F.lit(_complaint(column)))
    return outcome.value, [reason]


def _complaint(column: ops.AssignedColumn) -> str:
    if not column.name:
        return f"{print_node(column.expr)} can't be computed"
    return (
        f"column {column.name} is declared {type_name(column.dtype)}, but {print_node(column.expr)} can't be computed "
        "or isn't of that type"
    )


def _replaced(computed: Stream, types: Mapping[str, DataType]) -> Stream:
    """Replace columns by those of the same name after a `$`; new columns come last."""
    columns = {**computed.columns, **types}
    rows = [name(f"${column}").alias(column) if column in types else name(column) for column in columns]
    return replace(computed, frame=computed.frame.select(*computed.meta(), *rows), columns=columns)


@compile_step.register
def _(step: ops.Explode, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    sizes = [F.coalesce(F.size(name(column)), F.lit(0)) for column in step.columns]
    uneven = reduce(lambda a, b: a | b, (size != sizes[0] for size in sizes[1:]), F.lit(False))
    lengths = [F.concat(F.lit(f"{c} has "), size) for c, size in zip(step.columns, sizes, strict=True)]
    message = F.concat(
        F.lit("lists that are exploded together must be of one length, but "), F.concat_ws(", ", *lengths)
    )
    reasons = [Reason(failed=uneven, field=None, message=message)] if len(sizes) > 1 else []
    even = evaluate(before, {}, reasons, "explode", inputs.plan)
    return _exploded(even, step.columns)


def _exploded(before: Stream, columns: Sequence[str]) -> Stream:
    """Make a row for each element, with its number at the end of the id; a retraction retracts all of them."""
    types = {column: _element_type(before.columns[column]) for column in columns}
    element = spark.StructType([spark.StructField(column, spark_type(dtype)) for column, dtype in types.items()])
    elements = F.arrays_zip(*(name(column) for column in columns)).cast(spark.ArrayType(element))
    nothing = F.array(F.lit(None).cast(element))
    items = F.when(before.own() & (F.size(name(columns[0])) > 0), elements).otherwise(nothing)
    kept = [name(column) for column in before.columns if column not in types]
    number = F.when(before.own(), name(_NUMBER).cast("binary")).otherwise(F.lit(b""))
    frame = before.frame.select(*before.meta(), *kept, F.posexplode(items).alias(_NUMBER, _ELEMENT))
    meta = [F.concat(name(ID), number).alias(ID) if c == ID else name(c) for c in (*META, *before.pass_through)]
    new = [F.col(f"`{_ELEMENT}`.`{column}`").alias(column) for column in types]
    order = {**before.columns, **types}
    return replace(before, frame=frame.select(*meta, *kept, *new), columns=order)


def _element_type(dtype: DataType) -> DataType:
    found = base_type(dtype)
    if not isinstance(found, ListType):
        raise TypeError(f"explode of {dtype}")
    return optional(found.of)


@compile_step.register
def _(step: ops.Union, inputs: Inputs, job_rows: JobRows) -> Stream:
    left = compile_step(step.left, inputs, job_rows)
    return inputs.unite(left, compile_step(step.right, inputs, inputs.set_aside(left)))


@compile_step.register
def _(step: ops.Select, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    return _keep(before, {*before.keys, *step.columns})


@compile_step.register
def _(step: ops.Drop, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    return _keep(before, {*before.columns} - {*step.columns})


@compile_step.register
def _(step: ops.Rename, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    new = {column: column for column in (*before.columns, before.timestamp)}
    for old, renamed in step.pairs:
        # Pairs apply one after the other, so a later pair sees the new names of an earlier one.
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
def _(step: ops.Join, inputs: Inputs, job_rows: JobRows) -> Stream:
    left = compile_step(step.left, inputs, job_rows)
    return joined(left, inputs.topics[step.right], step, inputs)


@compile_step.register
def _(step: ops.Changelog, inputs: Inputs, job_rows: JobRows) -> Stream:
    return changelog(compile_step(step.of, inputs, job_rows), step, inputs)


@compile_step.register
def _(step: ops.Dedup, inputs: Inputs, job_rows: JobRows) -> Stream:
    return deduplicated(compile_step(step.of, inputs, job_rows), step, inputs)


@compile_step.register
def _(step: ops.First, inputs: Inputs, job_rows: JobRows) -> Stream:
    return first(compile_step(step.of, inputs, job_rows), step.keys, inputs)


@compile_step.register
def _(step: ops.Latest, inputs: Inputs, job_rows: JobRows) -> Stream:
    # `latest` changes no row: each row is a version of its group, and readers see the newest version of a key.
    return replace(compile_step(step.of, inputs, job_rows), keys=step.keys)


@compile_step.register
def _(step: ops.Aggregate, inputs: Inputs, job_rows: JobRows) -> Stream:
    before = compile_step(step.of, inputs, job_rows)
    if before.keys:
        before = aggregate_inputs(before, inputs)
    used = {a.of for a in step.aggregates if a.of is not None}
    if step.along is not None:
        before = _placed(before, step.along)
        used.add(before.timestamp)
    return replace(_keep(before, {*step.keys, *used}), keys=step.keys)


def _placed(before: Stream, along: str) -> Stream:
    """Set the event time of rows from a column; the old time becomes a column, which orders rows of equal times."""
    time = F.when(before.puts(), name(along)).otherwise(name(TIME))
    frame = before.frame.withColumn(before.timestamp, name(TIME)).withColumn(TIME, time)
    return replace(before, frame=frame, columns={**before.columns, before.timestamp: DATETIME})


def _keep(before: Stream, columns: set[str]) -> Stream:
    kept = {column: dtype for column, dtype in before.columns.items() if column in columns}
    frame = before.frame.select(*before.meta(), *(name(column) for column in kept))
    return replace(before, frame=frame, columns=kept)
