"""Pipelines without a job: an index computes them itself while it reads the topic of their input (decision 36).

This is possible for pipelines whose steps each make at most one row of a row, keep no state and can't fail at a row. A
job would only copy such rows to another topic, from which the index would read them.
"""

from collections.abc import Mapping

from caraway.dtypes.types import BOOL, optional
from caraway.expr.nodes import Node, Now
from caraway.expr.references import walk
from caraway.expr.scalars.compiler import compile_scalar
from caraway.graph import operators as ops
from caraway.graph.schemas import Schema, schema_of
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import with_parents
from caraway.plan.failing import can_fail

Specs = Mapping[str, DatasetSpec]


def root_of(operator: ops.Operator, specs: Specs) -> str | None:
    """Return the dataset from whose topic an index can compute a tree by itself; None if that takes a job.

    The caller checks the records of that topic, which must be events that are never revised.

    Args:
        operator: The tree, in which the datasets that have no topic are replaced by their trees (`inlined`).
        specs: The datasets that it reads, by name.
    """
    last = operator
    if isinstance(operator, ops.Aggregate | ops.Latest):
        last = operator.of
    return _root(last, specs)


def inlined(operator: ops.Operator, trees: Mapping[str, ops.Operator]) -> ops.Operator:
    """Return a tree that reads the inputs of the datasets in `trees` instead of these datasets.

    The right side of a join stays as it is, since it needs a topic with the keys of its dataset.
    """
    if isinstance(operator, ops.Input):
        return trees.get(operator.dataset, operator)
    return with_parents(operator, lambda before: inlined(before, trees))


def _root(step: ops.Operator, specs: Specs) -> str | None:
    if isinstance(step, ops.Input):
        return None if specs[step.dataset].keys else step.dataset
    if not _is_per_row(step, specs):
        return None
    return _root(step.of, specs)  # type: ignore[union-attr]  # a step of one row has one input


def _is_per_row(step: ops.Operator, specs: Specs) -> bool:
    """Return whether a step makes at most one row of each row, without state, and can't fail."""
    match step:
        case ops.Select() | ops.Drop() | ops.Rename() | ops.DropNull():
            return True
        case ops.Filter(predicate=node) | ops.FilterFunction(traced=node) if node is not None:
            columns: tuple[ops.AssignedColumn, ...] = (ops.AssignedColumn(name="", dtype=optional(BOOL), expr=node),)
        case ops.Assign():
            columns = step.columns
        case ops.AssignFunction(traced=node) if node is not None:
            columns = (ops.AssignedColumn(name=step.column, dtype=step.dtype, expr=node),)
        case _:
            return False
    before = schema_of(step.of, specs)
    return all(_is_total(column, before) for column in columns)


def _is_total(column: ops.AssignedColumn, before: Schema) -> bool:
    types = before.columns
    return (
        not _depends_on_now(column.expr)
        and not can_fail(column.expr, column.dtype, types)
        and compile_scalar(column.expr, column.dtype, types) is not None
    )


def _depends_on_now(node: Node) -> bool:
    return any(isinstance(inner, Now) for inner in walk(node))
