"""The compiler of expressions to polars, whose results are the reference for the other compilers.

These rules define results that differ between engines: `//` of floats is `floor(l / r)`, and `%` is
`l - floor(l / r) * r`; ints wrap around; NaN equals NaN and is greater than all other values, also inside of lists,
dicts and structs, where null equals null too; a float is spelled in its shortest form, with an exponent below 1e-5 and
from 1e16 on. The modules of the namespaces have further rules.
"""

from collections.abc import Mapping

import polars as pl

from caraway.dtypes.types import DataType
from caraway.expr.inference import infer
from caraway.expr.nodes import Literal, Node

# Importing these modules registers their functions as `compile_node`'s handlers of the classes of nodes.
from caraway.expr.polars import lists, numbers, operators, strings, structs, time  # noqa: F401
from caraway.expr.polars.scope import PolarsScope, compile_node, widened
from caraway.expr.polars.values import INSTANT, polars_type


def compile_expr(node: Node, schema: Mapping[str, DataType], *, now: pl.Expr | int | None = None) -> pl.Expr:
    """Compile an expression over columns of the types in `schema`.

    A result whose type isn't optional may still be null where there is no value, such as for an int divided by zero;
    callers that need a value check for it. The evaluation raises `InvalidInputError` for a value that an operation
    refuses, such as a text that isn't in its format. `now` is the value of `now()`: instants, or microseconds since the
    epoch.
    """
    infer(node, schema)
    return compile_node(node, _scope(schema, now))


def compile_as(
    node: Node, dtype: DataType, schema: Mapping[str, DataType], *, now: pl.Expr | int | None = None
) -> pl.Expr:
    """Compile an expression and convert its result to the type that it is declared to have."""
    if isinstance(node, Literal) and node.dtype is None:
        return pl.lit(None, dtype=polars_type(dtype))
    found = infer(node, schema)
    return widened(compile_node(node, _scope(schema, now)), found, dtype)


def reason_of(error: Exception) -> str:
    """Return the reason why an evaluation failed, without polars's text of the expression, which users didn't write."""
    return str(error).partition("\n\nThis error occurred in the following expression")[0]


def _scope(schema: Mapping[str, DataType], now: pl.Expr | int | None) -> PolarsScope:
    moment = pl.lit(now, dtype=pl.Int64).cast(INSTANT) if isinstance(now, int) else now
    return PolarsScope(schema=schema, now=moment)
