"""The expressions that can fail at a row: all others need no check of each row and produce no dead letters."""

from collections.abc import Mapping

from caraway.dtypes.types import (
    BOOL,
    BoolType,
    DataType,
    DatetimeType,
    FloatType,
    IntType,
    StringType,
    is_optional,
    strip_optional,
)
from caraway.expr.inference import infer_nullable, operand_type
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    FillNull,
    IsNull,
    Literal,
    Node,
    Ref,
    StringCall,
    Unary,
    When,
)
from caraway.expr.references import walk

# These expressions have a value for all operands. Others may have one too; they are merely checked needlessly.
_TOTAL = (Ref, Literal, Unary, Binary, IsNull, FillNull, When, StringCall)
# If both operands are ints, these operators return null for a divisor of zero.
_PARTIAL = (BinaryOp.FLOOR_DIV, BinaryOp.MOD)
_PLAIN = (IntType, FloatType, BoolType, StringType, DatetimeType)


def can_fail(node: Node, dtype: DataType, types: Mapping[str, DataType]) -> bool:
    """Return whether evaluating an expression or casting to its declared type can fail at a row of valid columns.

    Args:
        node: The expression.
        dtype: The declared type of the expression.
        types: The types of the columns.
    """
    found = infer_nullable(node, types)
    checked = not isinstance(strip_optional(dtype), _PLAIN) and found != dtype
    maybe_null = not is_optional(dtype) and (found is None or is_optional(found))
    return checked or maybe_null or not all(_is_total(inner, types) for inner in walk(node))


def _is_total(node: Node, types: Mapping[str, DataType]) -> bool:
    if not isinstance(node, _TOTAL):
        return False
    if isinstance(node, Binary) and node.op in _PARTIAL:
        sides = (infer_nullable(node.left, types), infer_nullable(node.right, types))
        return any(isinstance(operand_type(side or BOOL), FloatType) for side in sides)
    return True
