"""A plain evaluator of expressions, one row at a time: what the compilers are compared with."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from caraway.dtypes.types import FLOAT, DataType, base_type
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    Since,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)

Row = Mapping[str, Any]
Schema = Mapping[str, DataType]

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


def evaluate(node: Node, row: Row, schema: Schema, now: int) -> Any:
    """Evaluate an expression for a row of stored values; None is null."""
    value = _evaluate(node, row, schema, now)
    found = infer_nullable(node, schema)
    # An int that stands where the type is float is one.
    if value is not None and found is not None and base_type(found) == FLOAT:
        return float(value)
    return value


def _evaluate(node: Node, row: Row, schema: Schema, now: int) -> Any:  # noqa: C901, PLR0911, PLR0912 (a branch a member)
    def of(child: Node) -> Any:
        return evaluate(child, row, schema, now)

    match node:
        case Ref():
            return row[node.name]
        case Literal():
            return node.value
        case Now():
            return now
        case IsNull():
            return of(node.operand) is None
        case FillNull():
            value = of(node.operand)
            return of(node.fill) if value is None else value
        case When():
            for predicate, value in node.branches:
                if of(predicate) is True:
                    return of(value)
            return None if node.otherwise is None else of(node.otherwise)
        case Unary():
            value = of(node.operand)
            if value is None:
                return None
            return (not value) if node.op is UnaryOp.NOT else wrap(-value)
        case Binary():
            left, right = of(node.left), of(node.right)
            if node.op in (BinaryOp.AND, BinaryOp.OR):
                return kleene(node.op, left, right)
            return None if left is None or right is None else binary(node.op, left, right)
        case NumberCall():
            value = of(node.operand)
            return None if value is None else number(node.function, value)
        case Round():
            value = of(node.operand)
            return None if value is None else rounded(value, node.precision)
        case StringCall():
            parts = [of(part) for part in (node.operand, *node.args)]
            return None if None in parts else text(node.function, *parts)
        case DatePart():
            value = of(node.operand)
            return None if value is None else part(value, node.part, node.timezone)
        case Since():
            ends = of(node.operand), of(node.start)
            return None if None in ends else truncated(ends[0] - ends[1], UNITS[node.unit])
        case SinceEpoch():
            value = of(node.operand)
            return None if value is None else truncated(value, UNITS[node.unit])


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
            return order(left) == order(right)
        case BinaryOp.NE:
            return order(left) != order(right)
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
    """NaN equals itself and is greater than all other numbers."""
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


def spelled(value: float) -> str:
    """The shortest digits that read back the same, plainly from 1e-5 up to 1e16, else with an exponent."""
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
