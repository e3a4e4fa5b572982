"""The expressions that can fail at a row: all others need no check of each row and produce no dead letters."""

from collections.abc import Mapping

from caraway.dtypes import types as t
from caraway.expr import nodes as n
from caraway.expr.inference import infer_nullable, operand_type
from caraway.expr.references import walk

# Nodes of these classes can't fail, except for the operators in `_PARTIAL`. Some nodes of other classes can't fail
# either; treating them as nodes that can is needless, but does no harm.
_TOTAL = (n.Ref, n.Literal, n.Unary, n.Binary, n.IsNull, n.FillNull, n.When, n.StringCall)
# If both operands are ints, these operators return null for a divisor of zero. In a column that isn't optional, null
# counts as a failure.
_PARTIAL = (n.BinaryOp.FLOOR_DIV, n.BinaryOp.MOD)
_PLAIN = (t.IntType, t.FloatType, t.BoolType, t.StringType, t.DatetimeType)


def can_fail(node: n.Node, dtype: t.DataType, types: Mapping[str, t.DataType]) -> bool:
    """Return whether evaluating an expression or casting to its declared type can fail at a row of valid columns.

    Args:
        node: The expression.
        dtype: The declared type of the expression.
        types: The types of the columns.
    """
    found = infer_nullable(node, types)
    checked = not isinstance(t.strip_optional(dtype), _PLAIN) and found != dtype
    maybe_null = not t.is_optional(dtype) and (found is None or t.is_optional(found))
    return checked or maybe_null or not all(_is_total(inner, types) for inner in walk(node))


def _is_total(node: n.Node, types: Mapping[str, t.DataType]) -> bool:
    if not isinstance(node, _TOTAL):
        return False
    if isinstance(node, n.Binary) and node.op in _PARTIAL:
        sides = (infer_nullable(node.left, types), infer_nullable(node.right, types))
        return any(isinstance(operand_type(side or t.BOOL), t.FloatType) for side in sides)
    return True
