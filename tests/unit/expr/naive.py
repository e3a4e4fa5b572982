"""A plain evaluator of expressions, one row at a time: what the compilers are compared with.

Formats of time and JSON are read by the functions that the compilers use as well; those have tests of their own.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from caraway.dtypes.types import FLOAT, DataType, ListType, StructType, base_type
from caraway.expr.functions.chrono_reading import reader
from caraway.expr.functions.chrono_writing import writer
from caraway.expr.functions.json_path import parse_path
from caraway.expr.functions.json_text import extract
from caraway.expr.functions.json_values import parse_as
from caraway.expr.inference import element_type, infer_nullable, operand_type, within
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    DatetimeLiteral,
    DictContains,
    DictGet,
    DictLen,
    FillNull,
    FromEpoch,
    IsNull,
    JsonExtract,
    ListAt,
    ListCall,
    ListContains,
    ListFilter,
    ListMap,
    Literal,
    Log,
    MakeStruct,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    ParseJson,
    Power,
    Ref,
    Repeat,
    Round,
    Since,
    SinceEpoch,
    Split,
    Strftime,
    StringCall,
    StringFunction,
    Strptime,
    StructGet,
    TimeUnit,
    Unary,
    UnaryOp,
    Var,
    When,
    Zip,
)
from tests.unit.expr.naive_lists import contains, equal, list_call

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


# Where a row has the element of a lambda.
ELEMENT = " element"


def evaluate(node: Node, row: Row, schema: Schema, now: int) -> Any:
    """Evaluate an expression for a row of stored values; None is null."""
    return widen(_evaluate(node, row, schema, now), infer_nullable(node, schema))


def widen(value: Any, dtype: DataType | None) -> Any:
    """An int that stands where the type is float is one."""
    return float(value) if value is not None and dtype is not None and base_type(dtype) == FLOAT else value


def promoted(value: Any, source: DataType | None, target: DataType) -> Any:
    """A value where another type is declared; a struct has the fields of that, in its order."""
    base, into = None if source is None else base_type(source), base_type(target)
    if value is None or not (isinstance(base, StructType) and isinstance(into, StructType)):
        return widen(value, target)
    found = {name: (item, of) for (name, of), item in zip(base.fields, value, strict=True)}
    return [promoted(*found[name], of) for name, of in into.fields]


def _evaluate(node: Node, row: Row, schema: Schema, now: int) -> Any:  # noqa: C901, PLR0911 (a branch a member)
    def of(child: Node) -> Any:
        return evaluate(child, row, schema, now)

    def typed(child: Node) -> DataType | None:
        return infer_nullable(child, schema)

    def as_result(child: Node) -> Any:
        result = typed(node)
        return None if result is None else promoted(of(child), typed(child), result)

    match node:
        case Ref():
            return row[node.name]
        case Var():
            return row[ELEMENT]
        case Literal():
            return node.value
        case Now():
            return now
        case IsNull():
            return of(node.operand) is None
        case FillNull():
            value = as_result(node.operand)
            return as_result(node.fill) if value is None else value
        case When():
            chosen = next((value for predicate, value in node.branches if of(predicate) is True), node.otherwise)
            return None if chosen is None else as_result(chosen)
        case Binary() if node.op in (BinaryOp.AND, BinaryOp.OR):
            return kleene(node.op, of(node.left), of(node.right))
        case DictGet():
            return dict_get(of(node.operand), of(node.key), None if node.default is None else of(node.default))
        case ListContains():
            return contains(of(node.operand), of(node.item))
        case ListFilter() | ListMap():
            return lambda_call(node, of(node.operand), row, schema, now)
        case MakeStruct():
            given = dict(node.fields)
            return [promoted(of(given[name]), typed(given[name]), to) for name, to in node.dtype.fields]
        case Zip():
            return zipped(node, [of(value) for _, value in node.fields], schema)
        case Repeat():
            return [of(node.value)] * of(node.by)
    operands = [of(child) for child in children(node)]
    return None if None in operands else strict(node, operands, schema)


def children(node: Node) -> list[Node]:
    """The operands of a node whose value is null if one of them is."""
    match node:
        case Binary():
            return [node.left, node.right]
        case Power():
            return [node.operand, node.exponent]
        case StringCall():
            return [node.operand, *node.args]
        case Since():
            return [node.operand, node.start]
        case ListAt():
            return [node.operand, node.index]
        case DictContains():
            return [node.operand, node.key]
        case DatetimeLiteral():
            return []
        case _:
            return [node.operand]  # type: ignore[union-attr]


def strict(node: Node, operands: list[Any], schema: Schema) -> Any:  # noqa: C901, PLR0911, PLR0912 (a branch a member)
    """The value of a node whose operands aren't null."""
    value: Any = operands[0] if operands else None
    match node:
        case Unary():
            return (not value) if node.op is UnaryOp.NOT else wrap(-value)
        case Binary():
            return binary(node.op, value, operands[1])
        case NumberCall():
            return number(node.function, value)
        case Round():
            return rounded(value, node.precision)
        case Power():
            return power(value, operands[1])
        case Log():
            return logarithm(float(value), node.base)
        case StringCall():
            return text(node.function, *operands)
        case Split():
            return value.split(node.separator) if node.separator else list(value)
        case Strptime():
            return reader(node.format, node.timezone)(value)
        case Strftime():
            return writer(node.format, node.timezone)(value)
        case ParseJson():
            return parse_as(node.dtype)(value)
        case JsonExtract():
            return extract(parse_path(node.path), value)
        case DatePart():
            return part(value, node.part, node.timezone)
        case Since():
            return truncated(value - operands[1], UNITS[node.unit])
        case SinceEpoch():
            return truncated(value, UNITS[node.unit])
        case FromEpoch():
            us = value * UNITS[node.unit]
            return us if abs(us) <= INT_MAX else None
        case DatetimeLiteral():
            local = datetime(node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)  # noqa: DTZ001
            return (local.replace(tzinfo=ZoneInfo(node.timezone)) - EPOCH) // timedelta(microseconds=1)
        case ListCall():
            return list_call(node.function, value, element_type(node, infer_nullable(node.operand, schema)))
        case ListAt():
            return value[operands[1]] if -len(value) <= operands[1] < len(value) else None
        case DictLen():
            return len(value)
        case DictContains():
            return operands[1] in value
        case StructGet():
            base = base_type(infer_nullable(node.operand, schema))  # type: ignore[arg-type]
            assert isinstance(base, StructType)
            return value[[name for name, _ in base.fields].index(node.field)]
        case _:
            raise AssertionError(node)


def dict_get(value: Any, key: Any, default: Any) -> Any:
    return None if value is None or key is None else value.get(key, default)


def lambda_call(node: ListFilter | ListMap, value: Any, row: Row, schema: Schema, now: int) -> Any:
    if value is None:
        return None
    inner = within(schema, node.variable, element_type(node, infer_nullable(node.operand, schema)))
    body = node.predicate if isinstance(node, ListFilter) else node.body
    results = [evaluate(body, {**row, ELEMENT: element}, inner, now) for element in value]
    if isinstance(node, ListMap):
        return results
    return [element for element, kept in zip(value, results, strict=True) if kept]


def zipped(node: Zip, values: list[Any], schema: Schema) -> Any:
    given = {name: value for (name, _), value in zip(node.fields, values, strict=True)}
    types: dict[str, DataType] = {}
    for name, child in node.fields:
        found = infer_nullable(child, schema)
        assert found is not None
        base = operand_type(found)
        assert isinstance(base, ListType)
        types[name] = base.of
    return [
        [promoted(given[name][place], types[name], to) for name, to in node.dtype.fields]
        for place in range(min(map(len, values)))
    ]


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
        case _:
            try:
                result: float = getattr(math, function.replace("arc", "a"))(value)
            except ValueError:
                # A sine of infinity, an arcsine beyond 1.
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
        # A pole at zero, or a root of a negative number.
        if base == 0:
            return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
        return math.nan


def logarithm(value: float, base: float | None) -> float:
    natural = math.log(value) if value > 0 else -math.inf if value == 0 else math.nan
    return natural if base is None else divide(natural, math.log(base))


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
