"""Types of the `str` namespace."""

from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    INT,
    STRING,
    BytesType,
    DataType,
    ListType,
    MapType,
    OptionalType,
    StructType,
    optional,
    type_name,
)
from caraway.expr.functions.chrono_format import parse_reading_format
from caraway.expr.functions.json_path import parse_path
from caraway.expr.inference.checks import either_optional, infer_nullable, like, require, wrong, wrong_argument
from caraway.expr.inference.instants import require_timezone
from caraway.expr.inference.scopes import Schema
from caraway.expr.nodes import JsonExtract, ParseJson, Split, StringCall, StringFunction, Strptime


@infer_nullable.register
def _(node: StringCall, schema: Schema) -> DataType | None:
    parts = [infer_nullable(part, schema) for part in (node.operand, *node.args)]
    for part in parts:
        require(node, part, (STRING,))
    match node.function:
        case StringFunction.LOWER | StringFunction.UPPER | StringFunction.CONCAT:
            result: DataType = STRING
        case StringFunction.LEN:
            result = INT
        case StringFunction.CONTAINS | StringFunction.STARTSWITH | StringFunction.ENDSWITH:
            result = BOOL
    return either_optional(result, *parts)


@infer_nullable.register
def _(node: Split, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (STRING,))
    return like(operand, ListType(STRING))


@infer_nullable.register
def _(node: Strptime, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (STRING,))
    require_timezone(node, node.timezone)
    with wrong_argument(node):
        parse_reading_format(node.format)
    return like(operand, DATETIME)


@infer_nullable.register
def _(node: ParseJson, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, (STRING,))
    if _holds_bytes(node.dtype):
        raise wrong(node, f"JSON has no bytes, so str.parse() can't give {type_name(node.dtype)}; parse a str")
    return like(operand, node.dtype)


@infer_nullable.register
def _(node: JsonExtract, schema: Schema) -> DataType | None:
    require(node, infer_nullable(node.operand, schema), (STRING,))
    with wrong_argument(node):
        parse_path(node.path)
    return optional(STRING)


def _holds_bytes(dtype: DataType) -> bool:
    match dtype:
        case BytesType():
            return True
        case OptionalType(of) | ListType(of) | MapType(of):
            return _holds_bytes(of)
        case StructType(_, fields):
            return any(_holds_bytes(field) for _, field in fields)
        case _:
            return False
