"""References, constants, operators and choices in polars."""

from collections.abc import Callable, Mapping

import polars as pl

from caraway.dtypes.types import BOOL, DATE, DATETIME, FLOAT, INT, STRING, base_type
from caraway.expr.nodes import Binary, BinaryOp, FillNull, IsNull, Literal, Node, Now, Ref, Unary, UnaryOp, Var, When
from caraway.expr.polars.scope import ELEMENT, PolarsScope, as_column, compile_node
from caraway.expr.polars.values import polars_type, to_polars
from caraway.expr.references import columns_of

DIVISIONS = frozenset({BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD})

# For each comparison, the one that has the same result with its sides exchanged.
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
        # A literal of another type is the first item of a series (below), which polars doesn't always treat as a
        # constant. An int that is cast to an instant or a day is always treated as one.
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
    base = scope.common_base(node)
    left, right = scope.operand(node.left, base), scope.operand(node.right, base)
    if base == FLOAT and (node.op in DIVISIONS or _may_be_zero(node, node.right)) and not columns_of(node.right):
        right = as_column(right)
    if base == FLOAT and _may_be_zero(node, node.left) and not columns_of(node.left):
        left = as_column(left)
    return _compared(node, scope, left, right) if node.op in MIRRORED else OPERATORS[node.op](left, right)


def _may_be_zero(node: Binary, constant: Node) -> bool:
    """Return whether an added constant may be zero: polars leaves the addition out, though -0.0 + 0.0 is 0.0."""
    return node.op in (BinaryOp.ADD, BinaryOp.SUB) and not (isinstance(constant, Literal) and constant.value)


def _compared(node: Binary, scope: PolarsScope, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    if scope.type_of(node.left) is None or scope.type_of(node.right) is None:
        # polars can't compare a struct with the null literal. The result is null for each row of the other operand.
        other = right if scope.type_of(node.left) is None else left
        return pl.when(other.is_null()).then(pl.lit(None, dtype=pl.Boolean))
    if not columns_of(node.left):
        # polars returns a single row if the left side is a constant text and the right side a column of nulls. With the
        # sides exchanged it returns all rows.
        return OPERATORS[MIRRORED[node.op]](right, left)
    return OPERATORS[node.op](left, right)


@compile_node.register
def _(node: IsNull, scope: PolarsScope) -> pl.Expr:
    return compile_node(node.operand, scope).is_null()


@compile_node.register
def _(node: FillNull, scope: PolarsScope) -> pl.Expr:
    result = scope.type_of(node)
    if result is None:
        return pl.lit(None)
    operand = scope.operand(node.operand, result)
    # coalesce() isn't used, because it returns a single row if its first operand is a constant.
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
