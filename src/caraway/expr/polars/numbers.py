"""The `num` namespace in polars.

Sines, logarithms and powers are computed by the C library, and may differ from another engine's in the last bit. The
logarithm to a base is the quotient of two natural logarithms. A power of ints wraps around at 64 bits; a negative
exponent of an int is an error.
"""

import math
from collections.abc import Callable, Mapping

import polars as pl

from caraway.dtypes.types import FLOAT, INT
from caraway.dtypes.values import INT_MIN
from caraway.expr.functions.numbers import ALL_INTEGERS, MOST_DECIMALS, power_of_ints
from caraway.expr.nodes import Log, NumberCall, NumberFunction, Power, Round
from caraway.expr.polars.scope import PolarsScope, as_column, compile_node
from caraway.expr.polars.series import by_row
from caraway.expr.references import columns_of

OF_FLOATS: Mapping[NumberFunction, Callable[[pl.Expr], pl.Expr]] = {
    NumberFunction.SQRT: pl.Expr.sqrt,
    NumberFunction.SIN: pl.Expr.sin,
    NumberFunction.COS: pl.Expr.cos,
    NumberFunction.TAN: pl.Expr.tan,
    NumberFunction.ARCSIN: pl.Expr.arcsin,
    NumberFunction.ARCCOS: pl.Expr.arccos,
    NumberFunction.ARCTAN: pl.Expr.arctan,
    NumberFunction.IS_NAN: pl.Expr.is_nan,
    NumberFunction.IS_INFINITE: pl.Expr.is_infinite,
}


@compile_node.register
def _(node: NumberCall, scope: PolarsScope) -> pl.Expr:
    if node.function in OF_FLOATS:
        return OF_FLOATS[node.function](scope.operand(node.operand, FLOAT))
    base = scope.base_of(node.operand, INT)
    operand, is_float = scope.operand(node.operand, base), base == FLOAT
    match node.function:
        case NumberFunction.ABS:
            # The least int is -2**63. Its absolute value, 2**63, doesn't fit 64 bits, so the result is null.
            return operand.abs() if is_float else pl.when(operand != INT_MIN).then(operand.abs())
        case NumberFunction.CEIL:
            return _to_int(operand.ceil()) if is_float else operand
        case NumberFunction.FLOOR:
            return _to_int(operand.floor()) if is_float else operand
        case _:
            text = operand.cast(pl.String)
            return text.str.replace("e+", "e", literal=True) if is_float else text


@compile_node.register
def _(node: Round, scope: PolarsScope) -> pl.Expr:
    if scope.base_of(node.operand, INT) == INT:
        whole = scope.operand(node.operand, INT)
        return whole if node.precision == 0 else whole.cast(pl.Float64)
    operand = scope.operand(node.operand, FLOAT)
    if node.precision == 0:
        return _to_int(operand.round(0, mode="half_away_from_zero"))
    if node.precision > MOST_DECIMALS:
        return operand
    factor = 10.0**node.precision
    whole = (operand * factor).round(0, mode="half_away_from_zero")
    scaled = whole / as_column(pl.lit(factor))
    return (
        pl.when((operand.abs() < ALL_INTEGERS) & ((operand * factor).abs() < ALL_INTEGERS))
        .then(scaled)
        .otherwise(operand)
    )


def _to_int(number: pl.Expr) -> pl.Expr:
    # The cast isn't strict, so that NaN, infinities and numbers beyond 64 bits become null instead of an error.
    return number.cast(pl.Int64, strict=False)


@compile_node.register
def _(node: Power, scope: PolarsScope) -> pl.Expr:
    if FLOAT not in (scope.base_of(node.operand, INT), scope.base_of(node.exponent, INT)):
        sides = [scope.operand(side, INT) for side in (node.operand, node.exponent)]
        return by_row(power_of_ints, sides, (INT, INT), INT)
    base, exponent = scope.operand(node.operand, FLOAT), scope.operand(node.exponent, FLOAT)
    return base.pow(exponent if columns_of(node.exponent) else as_column(exponent))


@compile_node.register
def _(node: Log, scope: PolarsScope) -> pl.Expr:
    logarithm = scope.operand(node.operand, FLOAT).log()
    return logarithm if node.base is None else logarithm / as_column(pl.lit(_log(node.base), dtype=pl.Float64))


def _log(base: float) -> float:
    if base <= 0:
        return -math.inf if base == 0 else math.nan
    return math.log(base)
