"""Type rules of the `num` namespace."""

from caraway.dtypes.types import BOOL, FLOAT, INT, STRING, DataType
from caraway.expr.inference.checks import either_optional, infer_nullable, like, require
from caraway.expr.inference.scopes import Schema
from caraway.expr.nodes import Log, NumberCall, NumberFunction, Power, Round
from caraway.expr.promotion import NUMBERS


@infer_nullable.register
def _(node: NumberCall, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    base = require(node, operand, NUMBERS)
    match node.function:
        case NumberFunction.ABS:
            return like(operand, base)
        case NumberFunction.CEIL | NumberFunction.FLOOR:
            return like(operand, INT)
        case NumberFunction.IS_NAN | NumberFunction.IS_INFINITE:
            return like(operand, BOOL)
        case NumberFunction.TO_STRING:
            return like(operand, STRING)
        case _:
            return like(operand, FLOAT)


@infer_nullable.register
def _(node: Round, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, NUMBERS)
    return like(operand, INT if node.precision == 0 else FLOAT)


@infer_nullable.register
def _(node: Power, schema: Schema) -> DataType | None:
    sides = infer_nullable(node.operand, schema), infer_nullable(node.exponent, schema)
    bases = [require(node, side, NUMBERS) for side in sides]
    return either_optional(FLOAT if FLOAT in bases else INT, *sides)


@infer_nullable.register
def _(node: Log, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    require(node, operand, NUMBERS)
    return like(operand, FLOAT)
