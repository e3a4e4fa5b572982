"""The `num` namespace of single values."""

import math
from collections.abc import Callable, Mapping

from caraway.dtypes.types import FLOAT, INT
from caraway.dtypes.values import INT_MIN
from caraway.expr.functions.numbers import ALL_INTEGERS, MOST_DECIMALS, power_of_ints
from caraway.expr.nodes import Log, NumberCall, NumberFunction, Power, Round
from caraway.expr.scalars import arithmetic
from caraway.expr.scalars.operators import strict, strict2
from caraway.expr.scalars.scope import Scalar, ScalarScope, compile_node


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    def evaluate(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            # Python raises this error for a root of a negative number, a sine of infinity, and an arcsine beyond 1. The
            # result is NaN, as in polars.
            return math.nan

    return evaluate


OF_FLOATS: Mapping[NumberFunction, Callable[[float], float]] = {
    NumberFunction.SQRT: _or_nan(math.sqrt),
    NumberFunction.SIN: _or_nan(math.sin),
    NumberFunction.COS: _or_nan(math.cos),
    NumberFunction.TAN: _or_nan(math.tan),
    NumberFunction.ARCSIN: _or_nan(math.asin),
    NumberFunction.ARCCOS: _or_nan(math.acos),
    NumberFunction.ARCTAN: math.atan,
    NumberFunction.IS_NAN: math.isnan,
    NumberFunction.IS_INFINITE: math.isinf,
}


@compile_node.register
def _(node: NumberCall, scope: ScalarScope) -> Scalar:
    if node.function in OF_FLOATS:
        return strict(OF_FLOATS[node.function], scope.operand(node.operand, FLOAT))
    base = scope.base_of(node.operand, INT)
    operand, is_float = scope.operand(node.operand, base), base == FLOAT
    match node.function:
        case NumberFunction.ABS:
            # The absolute value of the least int, 2**63, doesn't fit 64 bits, so the result is null.
            return strict(abs if is_float else lambda value: None if value == INT_MIN else abs(value), operand)
        case NumberFunction.CEIL:
            return strict(arithmetic.ceiling, operand) if is_float else operand
        case NumberFunction.FLOOR:
            return strict(arithmetic.floor, operand) if is_float else operand
        case _:
            return strict(arithmetic.spelled if is_float else str, operand)


@compile_node.register
def _(node: Round, scope: ScalarScope) -> Scalar:
    if scope.base_of(node.operand, INT) == INT:
        whole = scope.operand(node.operand, INT)
        return whole if node.precision == 0 else strict(float, whole)
    operand = scope.operand(node.operand, FLOAT)
    if node.precision == 0:
        return strict(lambda value: arithmetic.to_int(arithmetic.half_away(value)), operand)
    if node.precision > MOST_DECIMALS:
        return operand
    factor = 10.0**node.precision

    def rounded(value: float) -> float:
        scaled = value * factor
        if abs(value) < ALL_INTEGERS and abs(scaled) < ALL_INTEGERS:
            return arithmetic.half_away(scaled) / factor
        return value

    return strict(rounded, operand)


@compile_node.register
def _(node: Power, scope: ScalarScope) -> Scalar:
    sides = node.operand, node.exponent
    if FLOAT not in [scope.base_of(side, INT) for side in sides]:
        return strict2(power_of_ints, *[scope.operand(side, INT) for side in sides])
    return strict2(arithmetic.power_of_floats, *[scope.operand(side, FLOAT) for side in sides])


@compile_node.register
def _(node: Log, scope: ScalarScope) -> Scalar:
    operand = scope.operand(node.operand, FLOAT)
    if node.base is None:
        return strict(arithmetic.natural_log, operand)
    of_base = arithmetic.natural_log(node.base)
    return strict(lambda value: arithmetic.divide(arithmetic.natural_log(value), of_base), operand)
