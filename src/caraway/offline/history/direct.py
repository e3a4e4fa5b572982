"""The steps by which an index computes its records from those of its pipeline's input, over columns (decision 36).

`caraway.index.feeding.direct` takes the same steps row by row. Each of them makes at most one row of a row and can't
fail, so their results don't depend on which rows are computed together.
"""

from collections.abc import Mapping

import polars as pl

from caraway.dtypes.types import BOOL, DataType, optional, strip_optional
from caraway.expr.nodes import Node
from caraway.expr.polars.compiler import compile_as
from caraway.expr.references import columns_of
from caraway.graph import operators as ops

Types = Mapping[str, DataType]


def before_aggregation(operator: ops.Operator) -> ops.Operator:
    """Return the steps that make the records of an index; its last operator is the index's own work."""
    return operator.of if isinstance(operator, ops.Aggregate | ops.Latest) else operator


def needed(operator: ops.Operator, wanted: frozenset[str]) -> frozenset[str]:
    """Return the columns of a tree's input from which it computes the wanted columns of its output."""
    match operator:
        case ops.Input():
            return wanted
        case ops.Select() | ops.Drop():
            return needed(operator.of, wanted)
        case ops.Rename(of=of, pairs=pairs):
            before = set(wanted)
            for old, new in reversed(pairs):
                if new in before:
                    before.remove(new)
                    before.add(old)
            return needed(of, frozenset(before))
        case ops.DropNull(of=of, columns=columns):
            return needed(of, wanted.union(columns))
        case ops.Filter(of=of, predicate=node) | ops.FilterFunction(of=of, traced=node) if node is not None:
            return needed(of, wanted.union(columns_of(node)))
        case ops.Assign() | ops.AssignFunction():
            assigned = [item for item in _assigned(operator) if item[0] in wanted]
            read = {name for _, _, node in assigned for name in columns_of(node)}
            return needed(operator.of, (wanted - {name for name, _, _ in assigned}) | read)
        case _:
            raise TypeError(f"{type(operator).__name__} can't be computed by an index")


def computed(operator: ops.Operator, frame: pl.DataFrame, types: Types) -> tuple[pl.DataFrame, Types]:
    """Return the output of a tree for its input, and the types of the output's columns.

    The frame has the columns that `needed` returns, and may have others, which follow their rows.
    """
    match operator:
        case ops.Input():
            return frame, types
        case ops.Select() | ops.Drop():
            # Columns that are left out may stay, since no later step refers to them.
            return computed(operator.of, frame, types)
        case ops.Rename(of=of, pairs=pairs):
            frame, types = computed(of, frame, types)
            for old, new in pairs:
                if old in frame.columns:
                    frame = frame.drop(new, strict=False).rename({old: new})
                types = {name: dtype for name, dtype in types.items() if name not in {old, new}} | {new: types[old]}
            return frame, types
        case ops.DropNull(of=of, columns=names):
            frame, types = computed(of, frame, types)
            return frame.drop_nulls(list(names)), {**types, **{name: strip_optional(types[name]) for name in names}}
        case ops.Filter(of=of, predicate=node) | ops.FilterFunction(of=of, traced=node) if node is not None:
            frame, types = computed(of, frame, types)
            return frame.filter(compile_as(node, optional(BOOL), types).fill_null(value=False)), types
        case ops.Assign() | ops.AssignFunction():
            frame, types = computed(operator.of, frame, types)
            assigned = _assigned(operator)
            # Columns that no later step needs may lack what they are computed from.
            columns = [
                compile_as(node, dtype, types).alias(name)
                for name, dtype, node in assigned
                if set(columns_of(node)) <= set(frame.columns)
            ]
            return frame.with_columns(columns), {**types, **{name: dtype for name, dtype, _ in assigned}}
        case _:
            raise TypeError(f"{type(operator).__name__} can't be computed by an index")


def _assigned(operator: ops.Assign | ops.AssignFunction) -> list[tuple[str, DataType, Node]]:
    if isinstance(operator, ops.Assign):
        return [(column.name, column.dtype, column.expr) for column in operator.columns]
    if operator.traced is None:
        raise TypeError(f"the function of column {operator.column} can't be computed by an index")
    return [(operator.column, operator.dtype, operator.traced)]
