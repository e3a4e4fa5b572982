"""Which expressions can fail at a row: those that can't need no check of each row, and no dead letters."""

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

# Each of these has a value for all operands. (The others may have, too: for them a check is made that never hits.)
_TOTAL = (Ref, Literal, Unary, Binary, IsNull, FillNull, When, StringCall)
# Null for a divisor of zero, if both sides are ints.
_PARTIAL = (BinaryOp.FLOOR_DIV, BinaryOp.MOD)
_PLAIN = (IntType, FloatType, BoolType, StringType, DatetimeType)


def can_fail(node: Node, dtype: DataType, types: Mapping[str, DataType]) -> bool:
    """Tell whether the evaluation of an expression, or its declared type, can refuse a row that fits its own types.

    Args:
        node: The expression.
        dtype: Its declared type.
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
