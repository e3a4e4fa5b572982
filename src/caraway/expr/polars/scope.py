"""The scope of an expression and the dispatch over nodes, which the modules of the polars compiler share.

Each node has a handler, in the module of its namespace, which returns a polars expression over the columns of a frame,
one value a row. A constant returns one value, which polars repeats beside columns.
"""

from dataclasses import dataclass
from functools import singledispatch

import polars as pl

from caraway.dtypes.types import DataType, StructType, base_type, is_optional
from caraway.expr.inference import TypedScope
from caraway.expr.nodes import Node
from caraway.expr.polars.values import polars_type

# The column of the elements in the frame over which the body of a lambda is evaluated; no column has such a name.
ELEMENT = "__caraway element"


@dataclass(frozen=True, slots=True)
class PolarsScope(TypedScope):
    """The names that an expression may refer to: typed columns, in a lambda the element, and the query's time."""

    now: pl.Expr | None

    def operand(self, node: Node, base: DataType) -> pl.Expr:
        """Compile a node as an operand of type `base`: null takes any type, an int becomes a float."""
        return widened(compile_node(node, self), self.type_of(node), base)


@singledispatch
def compile_node(node: Node, scope: PolarsScope) -> pl.Expr:
    """Compile an expression that is well-typed in its scope."""
    raise NotImplementedError(f"polars has no form for {type(node).__name__}")


def widened(expr: pl.Expr, source: DataType | None, target: DataType) -> pl.Expr:
    """Convert an expression of type `source` (None: the null literal) to `target`, to which it promotes.

    An int becomes a float, and a struct has the fields of the target in its order; a null struct stays null.
    """
    wanted = polars_type(target)
    if source is not None and polars_type(source) == wanted:
        return expr
    base, into = None if source is None else base_type(source), base_type(target)
    if not isinstance(base, StructType) or not isinstance(into, StructType):
        return expr.cast(wanted)
    types = dict(base.fields)
    fields = [widened(expr.struct.field(name), types[name], to).alias(name) for name, to in into.fields]
    made = pl.struct(fields) if fields else pl.lit(None, dtype=wanted)
    return pl.when(expr.is_not_null()).then(made) if source is not None and is_optional(source) else made


def as_column(constant: pl.Expr) -> pl.Expr:
    """Repeat a constant float for each row.

    polars has short cuts for single floats that compute other bits: it divides by one by multiplying with its
    reciprocal (14.0 / 10.0 would be 1.4000000000000001), and raises to the power 0.5 by a square root. It recognises a
    repeated constant, but not a constant times a computed one, which has the same value. (Subtracting a computed zero
    doesn't work: polars makes the negative of a column from zero less the column, and so 0.0 from -0.0.)
    """
    ones = pl.int_range(pl.len(), dtype=pl.Int64).cast(pl.Float64) * 0.0 + 1.0
    return constant * ones
