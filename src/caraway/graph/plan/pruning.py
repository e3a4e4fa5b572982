"""Pruning of columns: a column that no later step and no output needs is left out as early as possible.

A column that isn't needed is not decoded from the records that a job reads, passes no shuffle and is in no state.
Pruning is expressed as further `Select` steps of the graph: right behind an input, where the decoder performs it, and
before steps that keep rows.

Results don't change. A row at which a step fails becomes a dead letter as it is at that step, so a step that can fail
needs all columns; so does a Python function, which gets the whole frame. In a join of tables a version begins wherever
a joined column changes, so all joined columns stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from caraway.dtypes.types import BOOL, optional
from caraway.expr.references import columns_of
from caraway.graph import operators as ops
from caraway.graph.plan.failing import can_fail
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import with_parents

Specs = Mapping[str, DatasetSpec]


def pruned(operator: ops.Operator, specs: Specs) -> ops.Operator:
    """Return a tree with the same output that carries no column further than it is needed.

    Args:
        operator: The tree, which has been validated.
        specs: The datasets that it reads, by name.
    """
    return _giving(operator, frozenset(schema_of(operator, specs).columns), specs)


def _giving(operator: ops.Operator, wanted: frozenset[str], specs: Specs) -> ops.Operator:
    """Return the tree with at least the wanted columns of its output, in the same order."""
    match operator:
        case ops.Input():
            return _only(operator, wanted, specs)
        case ops.Filter() | ops.FilterFunction() | ops.Assign() | ops.AssignFunction() | ops.Transform():
            return _computed(operator, wanted, specs)
        case ops.Select():
            of = _giving(operator.of, wanted, specs)
            keys = schema_of(of, specs).keys
            return _select(of, tuple(c for c in operator.columns if c in wanted or c in keys), specs)
        case ops.Drop():
            of = _giving(operator.of, wanted, specs)
            left = tuple(column for column in operator.columns if column in schema_of(of, specs).columns)
            return replace(operator, of=of, columns=left) if left else of
        case ops.Rename():
            return _renamed(operator, wanted, specs)
        case ops.DropNull():
            return replace(operator, of=_giving(operator.of, wanted.union(operator.columns), specs))
        case ops.Explode():
            # An explode of several columns fails if their lists differ in length. The dead letter shows the row with
            # all of its columns, so all are needed.
            needed = wanted if len(operator.columns) == 1 else _all(operator.of, specs)
            return replace(operator, of=_giving(operator.of, needed.union(operator.columns), specs))
        case ops.Latest():
            return replace(operator, of=_giving(operator.of, wanted.union(operator.keys), specs))
        case ops.Union() | ops.Changelog():
            return with_parents(operator, lambda before: _narrowed(before, wanted, specs))
        case ops.Dedup(by=group) | ops.First(keys=group):
            return replace(operator, of=_narrowed(operator.of, wanted.union(group), specs))
        case ops.Join():
            return _joined(operator, wanted, specs)
        case ops.Aggregate():
            read = {aggregate.of for aggregate in operator.aggregates if aggregate.of is not None}
            along = () if operator.along is None else (operator.along,)
            needed = frozenset((*operator.keys, *read, *along))
            if schema_of(operator.of, specs).keys:
                # If the input has keys, a step stores each version of an input row as state, until the next version
                # retracts the aggregate inputs that were made from it. So the input is narrowed to exactly the needed
                # columns.
                return replace(operator, of=_narrowed(operator.of, needed, specs))
            return replace(operator, of=_giving(operator.of, needed, specs))


def _computed(
    operator: ops.Filter | ops.FilterFunction | ops.Assign | ops.AssignFunction | ops.Transform,
    wanted: frozenset[str],
    specs: Specs,
) -> ops.Operator:
    """Return a step that evaluates an expression or function, with its input narrowed to the columns that it needs."""
    before = schema_of(operator.of, specs).columns
    computed = _expressions(operator)
    if computed is None or any(can_fail(column.expr, column.dtype, before) for column in computed):
        return replace(operator, of=_giving(operator.of, frozenset(before), specs))
    if isinstance(operator, (ops.Assign, ops.AssignFunction)):
        computed = tuple(column for column in computed if column.name in wanted)
        if not computed:
            return _giving(operator.of, wanted, specs)
        if isinstance(operator, ops.Assign):
            operator = replace(operator, columns=computed)
    read = {name for column in computed for name in columns_of(column.expr)}
    # A replaced column is read too, so that the new column takes its position.
    return replace(operator, of=_giving(operator.of, (wanted & before.keys()) | read, specs))


def _expressions(
    operator: ops.Filter | ops.FilterFunction | ops.Assign | ops.AssignFunction | ops.Transform,
) -> tuple[ops.AssignedColumn, ...] | None:
    """Return the expressions that a step evaluates; None if it calls a Python function."""
    match operator:
        case ops.Filter(predicate=node) | ops.FilterFunction(traced=node) if node is not None:
            return (ops.AssignedColumn(name="", dtype=optional(BOOL), expr=node),)
        case ops.Assign():
            return operator.columns
        case ops.AssignFunction(traced=node) if node is not None:
            return (ops.AssignedColumn(name=operator.column, dtype=operator.dtype, expr=node),)
        case _:
            return None


def _renamed(operator: ops.Rename, wanted: frozenset[str], specs: Specs) -> ops.Operator:
    before = schema_of(operator.of, specs).columns
    of = _giving(operator.of, frozenset(old for old in before if _new_name(old, operator.pairs) in wanted), specs)
    present = set(schema_of(of, specs).columns)
    pairs = []
    for old, new in operator.pairs:
        if old in present:
            present = present - {old} | {new}
            pairs.append((old, new))
    return replace(operator, of=of, pairs=tuple(pairs)) if pairs else of


def _new_name(column: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        column = new if column == old else column
    return column


def _joined(operator: ops.Join, wanted: frozenset[str], specs: Specs) -> ops.Operator:
    before = schema_of(operator.left, specs)
    left = _narrowed(operator.left, (wanted & before.columns.keys()).union(operator.left_on), specs)
    fields = operator.fields
    if not before.keys:
        # One field is kept even if none is wanted: the job reads the right-hand rows as rows of these fields, and a row
        # has at least one column.
        fields = tuple(field for field in fields if field in wanted) or fields[:1]
    return replace(operator, left=left, fields=fields)


def _narrowed(operator: ops.Operator, wanted: frozenset[str], specs: Specs) -> ops.Operator:
    return _only(_giving(operator, wanted, specs), wanted, specs)


def _only(operator: ops.Operator, wanted: frozenset[str], specs: Specs) -> ops.Operator:
    """Return the tree with exactly the keys and the wanted columns of its output."""
    schema = schema_of(operator, specs)
    values = tuple(column for column in schema.values if column in wanted)
    if not schema.keys and not values:
        # No column of this output is wanted, but a row has at least one, so the first column stays.
        values = tuple(schema.values)[:1]
    return _select(operator, (*schema.keys, *values), specs)


def _select(of: ops.Operator, columns: tuple[str, ...], specs: Specs) -> ops.Operator:
    if isinstance(of, ops.Select):
        of = of.of
    schema = schema_of(of, specs)
    return of if columns == (*schema.keys, *schema.values) else ops.Select(of=of, columns=columns)


def _all(operator: ops.Operator, specs: Specs) -> frozenset[str]:
    return frozenset(schema_of(operator, specs).columns)
