"""Expressions as functions of a single row, for queries of few rows.

Results are bit for bit those of `caraway.expr.polars.compiler`, which is the reference. A node that would differ there,
even for one value in a thousand, has no form here.
"""

from collections.abc import Mapping

from caraway.dtypes.types import DataType
from caraway.expr.inference import infer
from caraway.expr.nodes import Literal, Node

# The import registers the handlers of these modules.
from caraway.expr.scalars import lists, numbers, operators, strings, structs, time  # noqa: F401
from caraway.expr.scalars.scope import NoScalarFormError, Scalar, ScalarScope, compile_node, widened


def compile_scalar(node: Node, dtype: DataType, schema: Mapping[str, DataType]) -> Scalar | None:
    """Compile an expression into a function of a row; None if only polars can evaluate it.

    The function takes a dict of stored values by name of column, with the instant of the query under `NOW`, and may add
    entries of its own to it.

    Args:
        node: The expression.
        dtype: The type that its result is declared to have.
        schema: Types of the columns.

    Raises:
        DefinitionError: The expression is ill-typed.
    """
    if isinstance(node, Literal) and node.dtype is None:
        return lambda _row: None
    found = infer(node, schema)
    try:
        return widened(compile_node(node, ScalarScope(schema)), found, dtype)
    except NoScalarFormError:
        return None
