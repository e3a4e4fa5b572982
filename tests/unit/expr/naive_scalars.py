"""The functions of numbers, texts and instants, for the plain evaluator."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from caraway.expr.nodes import BinaryOp, NumberFunction, StringFunction, TimeUnit
from tests.unit.expr.naive_lists import equal

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
UNITS = {
    TimeUnit.YEAR: 365 * 86_400 * SECOND,
    TimeUnit.WEEK: 7 * 86_400 * SECOND,
    TimeUnit.DAY: 86_400 * SECOND,
    TimeUnit.HOUR: 3_600 * SECOND,
    TimeUnit.MINUTE: 60 * SECOND,
    TimeUnit.SECOND: SECOND,
    TimeUnit.MILLISECOND: 1_000,
    TimeUnit.MICROSECOND: 1,
}


def kleene(op: BinaryOp, left: Any, right: Any) -> Any:
    decides = op is BinaryOp.OR
    if left is decides or right is decides:
        return decides
    return None if left is None or right is None else not decides


def wrap(value: Any) -> Any:
    return value if isinstance(value, float) else (value + 2**63) % 2**64 - 2**63


def binary(op: BinaryOp, left: Any, right: Any) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    match op:
        case BinaryOp.ADD:
            return wrap(left + right)
        case BinaryOp.SUB:
            return wrap(left - right)
        case BinaryOp.MUL:
            return wrap(left * right)
        case BinaryOp.DIV:
            return divide(float(left), float(right))
        case BinaryOp.FLOOR_DIV if isinstance(left, int):
            return None if right == 0 else wrap(left // right)
        case BinaryOp.FLOOR_DIV:
            return floored(divide(left, right))
        case BinaryOp.MOD if isinstance(left, int):
            return None if right == 0 else left % right
        case BinaryOp.MOD:
            return left - times(floored(divide(left, right)), right)
        case BinaryOp.EQ:
            return equal(left, right)
        case BinaryOp.NE:
            return not equal(left, right)
        case BinaryOp.LT:
            return order(left) < order(right)
        case BinaryOp.LE:
            return order(left) <= order(right)
        case BinaryOp.GT:
            return order(left) > order(right)
        case BinaryOp.GE:
            return order(left) >= order(right)
        case _:
            raise AssertionError(op)


def order(value: Any) -> Any:
    """Return a key by which NaN equals itself and is greater than all other numbers."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return (0, value)


def divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def times(left: float, right: float) -> float:
    return left * right


def floored(value: float) -> float:
    if not math.isfinite(value) or value == 0:
        return value
    return float(math.floor(value))


def number(function: NumberFunction, value: float) -> Any:
    match function:
        case NumberFunction.ABS:
            return None if value == INT_MIN and isinstance(value, int) else abs(value)
        case NumberFunction.CEIL:
            return to_int(value, math.ceil)
        case NumberFunction.FLOOR:
            return to_int(value, math.floor)
        case NumberFunction.SQRT:
            return math.nan if value < 0 else math.sqrt(value)
        case NumberFunction.IS_NAN:
            return math.isnan(value)
        case NumberFunction.IS_INFINITE:
            return math.isinf(value)
        case NumberFunction.TO_STRING:
            return str(value) if isinstance(value, int) else spelled(value)
        case _:
            try:
                result: float = getattr(math, function.replace("arc", "a"))(value)
            except ValueError:
                # The function has no value here, such as a sine of infinity, an arcsine beyond 1.
                return math.nan
            return result


def power(base: float, exponent: float) -> float:
    if isinstance(base, int) and isinstance(exponent, int):
        return wrap(base**exponent)  # type: ignore[no-any-return]
    base, exponent = float(base), float(exponent)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        # Python raises for a pole at zero, and for a root of a negative number.
        if base == 0:
            return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
        return math.nan


def logarithm(value: float, base: float | None) -> float:
    natural = math.log(value) if value > 0 else -math.inf if value == 0 else math.nan
    return natural if base is None else divide(natural, math.log(base))


def spelled(value: float) -> str:
    """Return the shortest digits that read back the same, plainly from 1e-5 up to 1e16, else with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    shortest = repr(value)
    mantissa, _, exponent = shortest.partition("e")
    if not exponent:
        if value == 0 or abs(value) >= 1e-5:
            return shortest
        raise AssertionError(shortest)
    power = int(exponent)
    if power == -5:
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power}"


def to_int(value: float, rounding: Any) -> int | None:
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    whole: int = rounding(value)
    return whole if INT_MIN <= whole <= INT_MAX else None


def half_away(value: float) -> float:
    if not math.isfinite(value):
        return value
    whole = float(math.trunc(value))
    return math.copysign(whole + math.copysign(1.0, value) if abs(value - whole) >= 0.5 else whole, value)


def rounded(value: float, precision: int) -> float | None:
    if precision == 0:
        return value if isinstance(value, int) else to_int(half_away(value), int)
    if isinstance(value, int):
        return float(value)
    scaled = value * 10.0**precision
    return half_away(scaled) / 10.0**precision if abs(value) < 2**52 and abs(scaled) < 2**52 else value


def text(function: StringFunction, value: str, other: str = "") -> Any:
    match function:
        case StringFunction.LOWER:
            return value.lower()
        case StringFunction.UPPER:
            return value.upper()
        case StringFunction.LEN:
            return len(value)
        case StringFunction.CONTAINS:
            return other in value
        case StringFunction.STARTSWITH:
            return value.startswith(other)
        case StringFunction.ENDSWITH:
            return value.endswith(other)
        case StringFunction.CONCAT:
            return value + other


def part(us: int, unit: TimeUnit, timezone: str) -> int:
    local = (EPOCH + timedelta(microseconds=us)).astimezone(ZoneInfo(timezone))
    match unit:
        case TimeUnit.WEEK:
            return local.isocalendar().week
        case TimeUnit.MILLISECOND:
            return local.microsecond // 1_000
        case _:
            return int(getattr(local, unit))


def truncated(us: int, length: int) -> int:
    return us // length if us >= 0 else -(-us // length)
