"""The scope of an expression and the dispatch over nodes, which the modules of the polars compiler share.

Each class of nodes has a handler in the module of its namespace. It returns a polars expression over the columns of a
frame. The expression of a constant has one value, which polars repeats where a column is beside it.
"""

from dataclasses import dataclass
from functools import singledispatch

import polars as pl

from caraway.dtypes.types import DataType, StructType, base_type, is_optional
from caraway.expr.inference import TypedScope
from caraway.expr.nodes import Node
from caraway.expr.polars.values import polars_type

# The name of the column with a list's elements, in the frame over which the body of a lambda is evaluated. Names of
# users' columns are identifiers, so none is equal to this name.
ELEMENT = "__caraway element"


@dataclass(frozen=True, slots=True)
class PolarsScope(TypedScope):
    """The scope of an expression, with the value of `now()`."""

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
    """Return a constant float as a column, so that polars takes none of its short cuts for constants.

    The short cuts have other bits in their results: polars divides by a constant by multiplying with its reciprocal
    (14.0 / 10.0 would be 1.4000000000000001), and raises to the power 0.5 by a square root. It recognises a repeated
    constant as well, but not the product of a constant and a column that is computed to be 1.0 in each row.
    (Subtracting a computed zero doesn't serve: polars negates a column by subtracting it from zero, which makes 0.0 of
    -0.0.)
    """
    ones = pl.int_range(pl.len(), dtype=pl.Int64).cast(pl.Float64) * 0.0 + 1.0
    return constant * ones
