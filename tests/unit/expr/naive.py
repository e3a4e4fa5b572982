"""A plain evaluator of expressions, one row at a time, with which the compilers are compared.

Formats of time and JSON are read by the functions that the compilers use as well; those have tests of their own.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from caraway.dtypes.types import FLOAT, DataType, ListType, StructType, base_type
from caraway.expr.functions.chrono_reading import reader
from caraway.expr.functions.chrono_writing import writer
from caraway.expr.functions.json_path import parse_path
from caraway.expr.functions.json_text import extract
from caraway.expr.functions.json_values import parse_as
from caraway.expr.inference import LambdaSchema, element_type, infer_nullable, operand_type
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
    Strptime,
    StructGet,
    Unary,
    UnaryOp,
    Var,
    When,
    Zip,
)
from tests.unit.expr.naive_lists import contains, list_call
from tests.unit.expr.naive_scalars import (
    EPOCH,
    INT_MAX,
    UNITS,
    binary,
    kleene,
    logarithm,
    number,
    part,
    power,
    rounded,
    text,
    truncated,
    wrap,
)

Row = Mapping[str, Any]
Schema = Mapping[str, DataType]

# The key of a lambda's element in a row.
ELEMENT = " element"


def evaluate(node: Node, row: Row, schema: Schema, now: int) -> Any:
    """Evaluate an expression for a row of stored values; None is null."""
    return widen(_evaluate(node, row, schema, now), infer_nullable(node, schema))


def widen(value: Any, dtype: DataType | None) -> Any:
    """Return the value as a float if it is an int and the type is float."""
    return float(value) if value is not None and dtype is not None and base_type(dtype) == FLOAT else value


def promoted(value: Any, source: DataType | None, target: DataType) -> Any:
    """Return a value under another declared type; a struct gets that type's fields in its order."""
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
    """Return the operands of a node whose value is null if one of them is."""
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
    """Return the value of a node whose operands aren't null."""
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
    inner = LambdaSchema(schema, node.variable, element_type(node, infer_nullable(node.operand, schema)))
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
