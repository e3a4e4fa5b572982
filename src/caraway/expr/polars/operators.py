"""References, constants, operators and choices in polars."""

from collections.abc import Callable, Mapping

import polars as pl

from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    base_type,
)
from caraway.expr.nodes import Binary, BinaryOp, FillNull, IsNull, Literal, Node, Now, Ref, Unary, UnaryOp, Var, When
from caraway.expr.polars.scope import ELEMENT, PolarsScope, as_column, compile_node
from caraway.expr.polars.values import polars_type, to_polars
from caraway.expr.references import columns_of

DIVISIONS = frozenset({BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD})

# For each comparison the one with its sides exchanged.
MIRRORED = {
    BinaryOp.EQ: BinaryOp.EQ,
    BinaryOp.NE: BinaryOp.NE,
    BinaryOp.LT: BinaryOp.GT,
    BinaryOp.LE: BinaryOp.GE,
    BinaryOp.GT: BinaryOp.LT,
    BinaryOp.GE: BinaryOp.LE,
}

OPERATORS: Mapping[BinaryOp, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    BinaryOp.ADD: lambda left, right: left + right,
    BinaryOp.SUB: lambda left, right: left - right,
    BinaryOp.MUL: lambda left, right: left * right,
    BinaryOp.DIV: lambda left, right: left / right,
    BinaryOp.FLOOR_DIV: lambda left, right: left // right,
    BinaryOp.MOD: lambda left, right: left % right,
    BinaryOp.EQ: lambda left, right: left == right,
    BinaryOp.NE: lambda left, right: left != right,
    BinaryOp.LT: lambda left, right: left < right,
    BinaryOp.LE: lambda left, right: left <= right,
    BinaryOp.GT: lambda left, right: left > right,
    BinaryOp.GE: lambda left, right: left >= right,
    BinaryOp.AND: lambda left, right: left & right,
    BinaryOp.OR: lambda left, right: left | right,
}


@compile_node.register
def _(node: Ref, _scope: PolarsScope) -> pl.Expr:
    return pl.col(node.name)


@compile_node.register
def _(_node: Var, _scope: PolarsScope) -> pl.Expr:
    return pl.col(ELEMENT)


@compile_node.register
def _(node: Literal, _scope: PolarsScope) -> pl.Expr:
    if node.value is None or node.dtype is None:
        return pl.lit(None) if node.dtype is None else pl.lit(None, dtype=polars_type(node.dtype))
    if base_type(node.dtype) in (INT, FLOAT, BOOL, STRING):
        return pl.lit(node.value, dtype=polars_type(node.dtype))
    if base_type(node.dtype) in (DATETIME, DATE):
        # The constant goes through an int, because polars doesn't always take the first item of a series for a
        # constant.
        return pl.lit(node.value, dtype=pl.Int64).cast(polars_type(node.dtype))
    return pl.lit(to_polars("", [node.value], node.dtype)).first()


@compile_node.register
def _(_node: Now, scope: PolarsScope) -> pl.Expr:
    if scope.now is None:
        raise NotImplementedError("now() has no value here; it is the time of a query")
    return scope.now


@compile_node.register
def _(node: Unary, scope: PolarsScope) -> pl.Expr:
    match node.op:
        case UnaryOp.NOT:
            return ~scope.operand(node.operand, BOOL)
        case UnaryOp.NEGATE:
            return -scope.operand(node.operand, scope.base_of(node, INT))


@compile_node.register
def _(node: Binary, scope: PolarsScope) -> pl.Expr:
    base = _operand_type(node, scope)
    left, right = scope.operand(node.left, base), scope.operand(node.right, base)
    if base == FLOAT and (node.op in DIVISIONS or _may_be_zero(node, node.right)) and not columns_of(node.right):
        right = as_column(right)
    if base == FLOAT and _may_be_zero(node, node.left) and not columns_of(node.left):
        left = as_column(left)
    return _compared(node, scope, left, right) if node.op in MIRRORED else OPERATORS[node.op](left, right)


def _may_be_zero(node: Binary, constant: Node) -> bool:
    """Return whether a constant of a sum may be 0.0, which polars would leave out: -0.0 plus 0.0 is 0.0."""
    return node.op in (BinaryOp.ADD, BinaryOp.SUB) and not (isinstance(constant, Literal) and constant.value)


def _compared(node: Binary, scope: PolarsScope, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if scope.type_of(node.left) is None or scope.type_of(node.right) is None:
        # polars can't compare a struct with null. The result is null for each row of the other side.
        other = right if scope.type_of(node.left) is None else left
        return pl.when(other.is_null()).then(pl.lit(None, dtype=pl.Boolean))
    if not columns_of(node.left):
        # polars returns one row for a constant text beside a column of nulls, but not the other way round.
        return OPERATORS[MIRRORED[node.op]](right, left)
    return OPERATORS[node.op](left, right)


def _operand_type(node: Binary, scope: PolarsScope) -> DataType:
    """Return the type to which both operands are converted."""
    if node.op in (BinaryOp.AND, BinaryOp.OR):
        return BOOL
    if node.op is BinaryOp.DIV:
        return FLOAT
    bases = [scope.base_of(side, BOOL) for side in (node.left, node.right) if scope.type_of(side) is not None]
    if not bases:
        return BOOL
    return FLOAT if FLOAT in bases else bases[0]


@compile_node.register
def _(node: IsNull, scope: PolarsScope) -> pl.Expr:
    return compile_node(node.operand, scope).is_null()


@compile_node.register
def _(node: FillNull, scope: PolarsScope) -> pl.Expr:
    result = scope.type_of(node)
    if result is None:
        return pl.lit(None)
    operand = scope.operand(node.operand, result)
    # coalesce() isn't used, because with a constant first it returns one row instead of the frame's.
    return pl.when(operand.is_not_null()).then(operand).otherwise(scope.operand(node.fill, result))


@compile_node.register
def _(node: When, scope: PolarsScope) -> pl.Expr:
    result = scope.type_of(node)
    if result is None:
        return pl.lit(None)
    chain: pl.Expr = pl.lit(None, dtype=polars_type(result))
    if node.otherwise is not None:
        chain = scope.operand(node.otherwise, result)
    for predicate, value in reversed(node.branches):
        chain = pl.when(scope.operand(predicate, BOOL)).then(scope.operand(value, result)).otherwise(chain)
    return chain
