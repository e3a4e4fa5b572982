"""Type rules of the `str` namespace."""

from caraway.dtypes import types as t
from caraway.expr.functions.chrono_format import parse_reading_format
from caraway.expr.functions.json_path import parse_path
from caraway.expr.inference.checks import either_optional, infer_nullable, like, require, wrong, wrong_argument
from caraway.expr.inference.instants import require_timezone
from caraway.expr.inference.scopes import Schema
from caraway.expr.nodes import JsonExtract, ParseJson, Split, StringCall, StringFunction, Strptime


@infer_nullable.register
def _(node: StringCall, schema: Schema) -> t.DataType | None:
    parts = [infer_nullable(part, schema) for part in (node.operand, *node.args)]
    for part in parts:
        require(node, part, (t.STRING,))
    match node.function:
        case StringFunction.LOWER | StringFunction.UPPER | StringFunction.CONCAT:
            result: t.DataType = t.STRING
        case StringFunction.LEN:
            result = t.INT
        case StringFunction.CONTAINS | StringFunction.STARTSWITH | StringFunction.ENDSWITH:
            result = t.BOOL
    return either_optional(result, *parts)


@infer_nullable.register
def _(node: Split, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (t.STRING,))
    return like(operand, t.ListType(t.STRING))


@infer_nullable.register
def _(node: Strptime, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (t.STRING,))
    require_timezone(node, node.timezone)
    with wrong_argument(node):
        parse_reading_format(node.format)
    return like(operand, t.DATETIME)


@infer_nullable.register
def _(node: ParseJson, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (t.STRING,))
    if _holds_bytes(node.dtype):
        raise wrong(node, f"JSON has no bytes, so str.parse() can't give {t.type_name(node.dtype)}; parse a str")
    return like(operand, node.dtype)


@infer_nullable.register
def _(node: JsonExtract, schema: Schema) -> t.DataType | None:
    require(node, infer_nullable(node.operand, schema), (t.STRING,))
    with wrong_argument(node):
        parse_path(node.path)
    return t.optional(t.STRING)


def _holds_bytes(dtype: t.DataType) -> bool:
    match dtype:
        case t.BytesType():
            return True
        case t.OptionalType(of) | t.ListType(of) | t.MapType(of):
            return _holds_bytes(of)
        case t.StructType(_, fields):
            return any(_holds_bytes(field) for _, field in fields)
        case _:
            return False
