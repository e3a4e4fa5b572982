"""The `num` namespace."""

import math
from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions import arithmetic
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node, is_float
from caraway.dataplane.streams.spark.java import active_jvm, call_java
from caraway.dtypes.types import FLOAT, INT
from caraway.expr.functions.numbers import ALL_INTEGERS, MOST_DECIMALS
from caraway.expr.nodes import Log, NumberCall, NumberFunction, Power, Round

_OF_FLOATS: Mapping[NumberFunction, Callable[[Column], Column]] = {
    NumberFunction.SQRT: F.sqrt,
    NumberFunction.SIN: F.sin,
    NumberFunction.COS: F.cos,
    NumberFunction.TAN: F.tan,
    NumberFunction.ARCSIN: F.asin,
    NumberFunction.ARCCOS: F.acos,
    NumberFunction.ARCTAN: F.atan,
    NumberFunction.IS_NAN: lambda number: F.when(number.isNotNull(), F.isnan(number)),
    NumberFunction.IS_INFINITE: lambda number: F.abs(number) == F.lit(arithmetic.INFINITY),
}


@compile_node.register
def _(node: NumberCall, scope: SparkScope) -> Column:
    if node.function in _OF_FLOATS:
        return _OF_FLOATS[node.function](compile_as(node.operand, FLOAT, scope))
    if is_float(node.operand, scope):
        return _float_call(node.function, compile_node(node.operand, scope))
    return _int_call(node.function, compile_as(node.operand, INT, scope))


def _float_call(function: NumberFunction, number: Column) -> Column:
    match function:
        case NumberFunction.ABS:
            return F.abs(number)
        case NumberFunction.CEIL:
            return arithmetic.to_long(-arithmetic.floor(-number))
        case NumberFunction.FLOOR:
            return arithmetic.to_long(arithmetic.floor(number))
        case NumberFunction.TO_STRING:
            return call_java(active_jvm().io.caraway.Numbers.text(), number)
        case _:
            raise AssertionError(f"{function} is a function of floats alone")


def _int_call(function: NumberFunction, number: Column) -> Column:
    match function:
        case NumberFunction.ABS:
            # -2**63, the least int, has no absolute value among ints of 64 bits, so the result for it is null.
            return F.when(number != arithmetic.LONG_MIN, F.abs(number))
        case NumberFunction.TO_STRING:
            return number.cast("string")
        case _:
            return number


@compile_node.register
def _(node: Round, scope: SparkScope) -> Column:
    if not is_float(node.operand, scope):
        return compile_as(node.operand, FLOAT if node.precision else INT, scope)
    number = compile_node(node.operand, scope)
    if node.precision == 0:
        return arithmetic.to_long(arithmetic.half_away(number))
    if node.precision > MOST_DECIMALS:
        return number
    factor = 10.0**node.precision
    scaled = number * factor
    return F.when(
        (F.abs(number) < ALL_INTEGERS) & (F.abs(scaled) < ALL_INTEGERS), arithmetic.half_away(scaled) / factor
    ).otherwise(number)


@compile_node.register
def _(node: Power, scope: SparkScope) -> Column:
    if is_float(node.operand, scope) or is_float(node.exponent, scope):
        return arithmetic.float_power(compile_as(node.operand, FLOAT, scope), compile_as(node.exponent, FLOAT, scope))
    return arithmetic.int_power(compile_as(node.operand, INT, scope), compile_as(node.exponent, INT, scope))


@compile_node.register
def _(node: Log, scope: SparkScope) -> Column:
    natural = arithmetic.logarithm(compile_as(node.operand, FLOAT, scope))
    if node.base is None:
        return natural
    return arithmetic.divide(natural, F.lit(_log_of(node.base)))


def _log_of(base: float) -> float:
    if base > 0:
        return math.log(base)
    return -math.inf if base == 0 else math.nan
