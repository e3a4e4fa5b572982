"""Expressions as functions of a single row, for queries of few rows.

The results are bit for bit those of `caraway.expr.polars.compiler`. A node for which a result could differ has no form
here, and polars evaluates the expressions that contain it.
"""

from collections.abc import Mapping

from caraway.dtypes.types import DataType
from caraway.expr.inference import infer
from caraway.expr.nodes import Literal, Node

# Importing these modules registers their functions as `compile_node`'s handlers of the classes of nodes.
from caraway.expr.scalars import lists, numbers, operators, strings, structs, time  # noqa: F401
from caraway.expr.scalars.scope import NoScalarFormError, Scalar, ScalarScope, compile_node, widened


def compile_scalar(node: Node, dtype: DataType, schema: Mapping[str, DataType]) -> Scalar | None:
    """Compile an expression, declared as `dtype`, into a function of a row; None if only polars can evaluate it.

    The function takes a dict of stored values by name of column, with the instant of the query under `NOW`, and may add
    entries of its own to the dict.
    """
    if isinstance(node, Literal) and node.dtype is None:
        return lambda _row: None
    found = infer(node, schema)
    try:
        return widened(compile_node(node, ScalarScope(schema)), found, dtype)
    except NoScalarFormError:
        return None
