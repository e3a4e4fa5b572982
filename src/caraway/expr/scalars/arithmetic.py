"""Arithmetic of single numbers as polars does it: ints of 64 bits that wrap around, floats that never raise."""

import math

from caraway.dtypes.values import INT_MAX, INT_MIN

# The number of 64-bit ints.
SIZE = 2**64


def wrapped(value: int) -> int:
    """Return an int wrapped around to 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    return (value - INT_MIN) % SIZE + INT_MIN


def divide(left: float, right: float) -> float:
    """Return the quotient of floats as IEEE 754 defines it, also by zero."""
    if right:
        return left / right
    if left == 0 or left != left:  # noqa: PLR0124 (NaN)
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def floored(value: float) -> float:
    """Return the greatest integer that isn't greater than a float."""
    if not math.isfinite(value) or value == 0:
        return value
    return float(math.floor(value))


def floor_divide(left: float, right: float) -> float:
    """Return the quotient of floats, rounded down."""
    return floored(divide(left, right))


def remainder(left: float, right: float) -> float:
    """Return the remainder of floats."""
    return left - floored(divide(left, right)) * right


def power_of_floats(base: float, exponent: float) -> float:
    """Return the power of floats as C does, infinite or NaN where Python raises an error."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        # Python raises this error for zero to a negative power and for a root of a negative number. C's pow(), which
        # polars uses, returns infinity for the first and NaN for the second.
        if base == 0:
            return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
        return math.nan


def natural_log(value: float) -> float:
    """Return the natural logarithm; -inf for 0, NaN for a negative number."""
    if value > 0:
        return math.log(value)
    return -math.inf if value == 0 else math.nan


def to_int(whole: float) -> int | None:
    """Return an integral float as an int; None for NaN, infinities and floats beyond 64 bits."""
    if not math.isfinite(whole):
        return None
    value = int(whole)
    return value if INT_MIN <= value <= INT_MAX else None


def ceiling(value: float) -> int | None:
    """Return a float rounded up to an int."""
    return to_int(-floored(-value))


def floor(value: float) -> int | None:
    """Return a float rounded down to an int."""
    return to_int(floored(value))


def half_away(value: float) -> float:
    """Return a float rounded to an integer, halves away from zero."""
    if not math.isfinite(value):
        return value
    whole = float(math.trunc(value))
    return math.copysign(whole + math.copysign(1.0, value) if abs(value - whole) >= 0.5 else whole, value)


def spelled(value: float) -> str:
    """Return a float's shortest text, with an exponent below 1e-5 and from 1e16 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    power = int(exponent)
    if power == -5:
        # Python spells numbers from 0.00001 to below 0.0001 with an exponent, polars without one.
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power}"
