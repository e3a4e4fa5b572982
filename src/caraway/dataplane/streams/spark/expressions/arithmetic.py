"""The arithmetic in which Spark differs from the language, with ANSI mode off as in Caraway's sessions.

In the language, floor division and modulo follow the divisor's sign; a float divided by zero is infinite or NaN, an int
divided by zero is null; and zeros keep their sign.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.scope import divided
from caraway.expr.nodes import BinaryOp

LONG_MIN = -(2**63)
INFINITY = float("inf")
NAN = float("nan")
# Every double whose absolute value is at least 2**53 is a whole number, so rounding returns it unchanged.
_WHOLE = float(2**53)
_LONG_END = float(2**63)
# Repeated squaring takes one step for each bit of the exponent, except for its sign bit: a negative exponent gives
# null.
_EXPONENT_BITS = 63

_Operator = Callable[[Column, Column], Column]


def divide(left: Column, right: Column) -> Column:
    """Divide as IEEE does. Spark gives null for a zero divisor, and distinguishes -0.0 from 0.0 only as text."""
    infinity = F.when(right.cast("string") == "-0.0", F.lit(-INFINITY)).otherwise(F.lit(INFINITY))
    return F.when(right == 0, left * infinity).otherwise(left / right)


def floor(number: Column) -> Column:
    """Floor a double to a double; Spark's own gives a long, which saturates and has no -0.0."""
    return F.when((F.abs(number) < _WHOLE) & (number != 0), F.floor(number).cast("double")).otherwise(number)


def half_away(number: Column) -> Column:
    """Round a double to a whole double, halves away from zero; Spark's own gives 0.0 for -0.3."""
    size = F.abs(number)
    whole = F.floor(size).cast("double")
    rounded = F.when(size - whole >= 0.5, whole + 1.0).otherwise(whole) * F.signum(number)
    return F.when(size < _WHOLE, rounded).otherwise(number)


def to_long(number: Column) -> Column:
    """Convert a whole double to a long; null if no long can hold it, as with NaN, which Spark orders last."""
    return F.when((number >= -_LONG_END) & (number < _LONG_END), number.cast("long"))


def int_power(number: Column, exponent: Column) -> Column:
    """Raise a long by repeated squaring, wrapping around; a negative exponent gives null."""
    start = F.struct(F.lit(1).cast("long").alias("power"), number.alias("square"), exponent.alias("bits"))

    def step(state: Column, _bit: Column) -> Column:
        power, square, bits = state.getField("power"), state.getField("square"), state.getField("bits")
        return F.struct(
            F.when(bits.bitwiseAND(F.lit(1).cast("long")) == 1, power * square).otherwise(power).alias("power"),
            (square * square).alias("square"),
            F.shiftright(bits, 1).alias("bits"),
        )

    bits = F.sequence(F.lit(1), F.lit(_EXPONENT_BITS))
    raised = F.aggregate(bits, start, step, lambda state: state.getField("power"))
    return F.when(number.isNotNull() & (exponent >= 0), raised)


def float_power(number: Column, exponent: Column) -> Column:
    """Return a power of doubles as C has it: 1 to any power, and -1 to an infinite one, is 1; Java gives NaN."""
    one = (number == 1) | ((number == -1) & (F.abs(exponent) == INFINITY))
    return F.when(number.isNull() | exponent.isNull(), F.lit(None)).when(one, 1.0).otherwise(F.pow(number, exponent))


def logarithm(number: Column) -> Column:
    """Return the natural logarithm of any double; Spark gives null for one that isn't positive."""
    return F.when(number == 0, -INFINITY).when(number < 0, NAN).otherwise(F.log(number))


def _floor_divide(left: Column, right: Column) -> Column:
    rest = left % right
    correction = F.when((rest != 0) & ((rest < 0) != (right < 0)), F.lit(1)).otherwise(F.lit(0)).cast("long")
    return divided(left, right) - correction


def _modulo(left: Column, right: Column) -> Column:
    rest = left % right
    return F.when((rest != 0) & ((rest < 0) != (right < 0)), rest + right).otherwise(rest)


def _float_modulo(left: Column, right: Column) -> Column:
    # polars computes its modulo by this formula, too, so Spark rounds in the same way as polars.
    return left - floor(divide(left, right)) * right


DIVISIONS: Mapping[BinaryOp, tuple[_Operator, _Operator]] = {
    BinaryOp.DIV: (divide, divide),
    BinaryOp.FLOOR_DIV: (lambda left, right: floor(divide(left, right)), _floor_divide),
    BinaryOp.MOD: (_float_modulo, _modulo),
}
