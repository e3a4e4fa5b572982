"""References, constants, operators and choices of single values."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from caraway.dtypes.types import BOOL, FLOAT, INT, DataType, base_type
from caraway.expr import nodes as n
from caraway.expr.references import walk
from caraway.expr.scalars import arithmetic, values
from caraway.expr.scalars.arithmetic import wrapped
from caraway.expr.scalars.scope import ELEMENT, NOW, Row, Scalar, ScalarScope, compile_node

# The nodes whose evaluation raises an error for some values. A `when()` that contains one evaluates all of its branches
# for each row, as polars does, so that both fail for the same rows.
REFUSING = (n.JsonExtract, n.ParseJson, n.Power, n.Repeat, n.Strftime, n.StringCall, n.Strptime, n.Zip)

Function = Callable[[Any, Any], Any]

OF_INTS: Mapping[n.BinaryOp, Function] = {
    n.BinaryOp.ADD: lambda left, right: wrapped(left + right),
    n.BinaryOp.SUB: lambda left, right: wrapped(left - right),
    n.BinaryOp.MUL: lambda left, right: wrapped(left * right),
    # A division by zero is null.
    n.BinaryOp.FLOOR_DIV: lambda left, right: wrapped(left // right) if right else None,
    n.BinaryOp.MOD: lambda left, right: left % right if right else None,
}
OF_FLOATS: Mapping[n.BinaryOp, Function] = {
    n.BinaryOp.ADD: operator.add,
    n.BinaryOp.SUB: operator.sub,
    n.BinaryOp.MUL: operator.mul,
    n.BinaryOp.DIV: arithmetic.divide,
    n.BinaryOp.FLOOR_DIV: arithmetic.floor_divide,
    n.BinaryOp.MOD: arithmetic.remainder,
    n.BinaryOp.LT: values.less,
    n.BinaryOp.LE: values.at_most,
    n.BinaryOp.GT: lambda left, right: values.less(right, left),
    n.BinaryOp.GE: lambda left, right: values.at_most(right, left),
}
ORDERINGS: Mapping[n.BinaryOp, Function] = {
    n.BinaryOp.LT: operator.lt,
    n.BinaryOp.LE: operator.le,
    n.BinaryOp.GT: operator.gt,
    n.BinaryOp.GE: operator.ge,
}


@compile_node.register
def _(node: n.Ref, _scope: ScalarScope) -> Scalar:
    return operator.itemgetter(node.name)


@compile_node.register
def _(_node: n.Var, _scope: ScalarScope) -> Scalar:
    return operator.itemgetter(ELEMENT)


@compile_node.register
def _(_node: n.Now, _scope: ScalarScope) -> Scalar:
    return operator.itemgetter(NOW)


@compile_node.register
def _(node: n.Literal, _scope: ScalarScope) -> Scalar:
    value = node.value
    if value is not None and node.dtype is not None and base_type(node.dtype) == FLOAT:
        value = float(value)  # type: ignore[arg-type]  # a literal of a float holds a number
    return lambda _row: value


@compile_node.register
def _(node: n.Unary, scope: ScalarScope) -> Scalar:
    match node.op:
        case n.UnaryOp.NOT:
            return strict(operator.not_, scope.operand(node.operand, BOOL))
        case n.UnaryOp.NEGATE:
            base = scope.base_of(node, INT)
            operand = scope.operand(node.operand, base)
            return strict(operator.neg if base == FLOAT else lambda value: wrapped(-value), operand)


def strict(function: Callable[[Any], Any], operand: Scalar) -> Scalar:
    """Return the function of a row that applies `function` to the operand's value, and is null for null."""

    def evaluate(row: Row) -> Any:
        value = operand(row)
        return None if value is None else function(value)

    return evaluate


def strict2(function: Function, left: Scalar, right: Scalar) -> Scalar:
    """Return the function of a row that applies `function` to two operands' values, and is null if one is null."""

    def evaluate(row: Row) -> Any:
        a, b = left(row), right(row)
        return None if a is None or b is None else function(a, b)

    return evaluate


@compile_node.register
def _(node: n.Binary, scope: ScalarScope) -> Scalar:
    base = scope.common_base(node)
    left, right = scope.operand(node.left, base), scope.operand(node.right, base)
    match node.op:
        case n.BinaryOp.AND:
            return _kleene(left, right, decides=False)
        case n.BinaryOp.OR:
            return _kleene(left, right, decides=True)
        case _:
            return strict2(_function(node.op, base), left, right)


def _function(op: n.BinaryOp, base: DataType) -> Function:
    if op in (n.BinaryOp.EQ, n.BinaryOp.NE):
        equal = values.equality(base)
        return equal if op is n.BinaryOp.EQ else lambda left, right: not equal(left, right)
    if base == FLOAT:
        return OF_FLOATS[op]
    return ORDERINGS[op] if op in ORDERINGS else OF_INTS[op]


def _kleene(left: Scalar, right: Scalar, *, decides: bool) -> Scalar:
    def evaluate(row: Row) -> bool | None:
        a: bool | None = left(row)
        b: bool | None = right(row)
        if a is decides or b is decides:
            return decides
        return None if a is None or b is None else not decides

    return evaluate


@compile_node.register
def _(node: n.IsNull, scope: ScalarScope) -> Scalar:
    operand = compile_node(node.operand, scope)
    return lambda row: operand(row) is None


@compile_node.register
def _(node: n.FillNull, scope: ScalarScope) -> Scalar:
    result = scope.type_of(node)
    if result is None:
        return lambda _row: None
    operand, fill = scope.operand(node.operand, result), scope.operand(node.fill, result)
    refuses = refusing(node.fill)

    def evaluate(row: Row) -> Any:
        value = operand(row)
        if refuses:
            other = fill(row)
            return other if value is None else value
        return fill(row) if value is None else value

    return evaluate


@compile_node.register
def _(node: n.When, scope: ScalarScope) -> Scalar:
    result = scope.type_of(node)
    if result is None:
        return lambda _row: None
    branches = [(scope.operand(predicate, BOOL), scope.operand(value, result)) for predicate, value in node.branches]
    otherwise: Scalar = (lambda _row: None) if node.otherwise is None else scope.operand(node.otherwise, result)

    def evaluate(row: Row) -> Any:
        for predicate, value in branches:
            if predicate(row) is True:
                return value(row)
        return otherwise(row)

    def evaluate_all(row: Row) -> Any:
        found = [(predicate(row), value(row)) for predicate, value in branches]
        last = otherwise(row)
        return next((value for holds, value in found if holds is True), last)

    return evaluate_all if refusing(node) else evaluate


def refusing(node: n.Node) -> bool:
    """Return whether the evaluation of an expression fails for some values."""
    return any(isinstance(inner, REFUSING) for inner in walk(node))
