"""Random expressions over any schema, few nodes: tests/integration/spark/test_conformance.py has all of them."""

from collections.abc import Mapping
from random import Random

from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    base_type,
)
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    DatePart,
    FillNull,
    IsNull,
    Literal,
    Node,
    NumberCall,
    NumberFunction,
    Ref,
    Round,
    SinceEpoch,
    StringCall,
    StringFunction,
    TimeUnit,
    Unary,
    UnaryOp,
    When,
)
from tests.parity.values import value

Columns = Mapping[str, DataType]

MADE: list[DataType] = [INT, FLOAT, BOOL, STRING, DATETIME]
ORDERINGS = [BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE]
ARITHMETIC = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]
DIVISION = [BinaryOp.FLOOR_DIV, BinaryOp.MOD]


def expression(rng: Random, columns: Columns, dtype: DataType, depth: int = 2) -> Node:
    """Draw an expression of a type of `MADE`, or of its optional."""
    found: list[Node] = [Ref(name=name) for name, of in columns.items() if base_type(of) == dtype]
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(found) if found and rng.random() < 0.8 else literal(rng, dtype)
    if rng.random() < 0.2:
        return _of_any(rng, columns, dtype, depth - 1)
    return _OF_TYPE[dtype](rng, columns, depth - 1)


def predicate(rng: Random, columns: Columns) -> Node:
    """Draw a condition that is never null; mostly true."""
    found = expression(rng, columns, BOOL)
    if rng.random() < 0.5:
        found = Binary(op=BinaryOp.OR, left=found, right=expression(rng, columns, BOOL))
    return FillNull(operand=found, fill=Literal(value=rng.random() < 0.7, dtype=BOOL))


def literal(rng: Random, dtype: DataType) -> Literal:
    return Literal(value=value(rng, dtype), dtype=dtype)


def _of_any(rng: Random, columns: Columns, dtype: DataType, depth: int) -> Node:
    first, second = expression(rng, columns, dtype, depth), expression(rng, columns, dtype, depth)
    if rng.random() < 0.5:
        return FillNull(operand=first, fill=second)
    return When(
        branches=((expression(rng, columns, BOOL, depth), first),), otherwise=second if rng.random() < 0.7 else None
    )


def _int(rng: Random, columns: Columns, depth: int) -> Node:
    match rng.randrange(5):
        case 0:
            unit = rng.choice([TimeUnit.HOUR, TimeUnit.DAY, TimeUnit.YEAR])
            return DatePart(operand=expression(rng, columns, DATETIME, depth), part=unit)
        case 1:
            return SinceEpoch(operand=expression(rng, columns, DATETIME, depth), unit=TimeUnit.HOUR)
        case 2:
            return StringCall(function=StringFunction.LEN, operand=expression(rng, columns, STRING, depth))
        case 3:
            return _binary(rng, columns, DIVISION, INT, depth)
        case _:
            return _binary(rng, columns, ARITHMETIC, INT, depth)


def _float(rng: Random, columns: Columns, depth: int) -> Node:
    match rng.randrange(4):
        case 0:
            return Binary(
                op=BinaryOp.DIV, left=expression(rng, columns, FLOAT, depth), right=expression(rng, columns, INT, depth)
            )
        case 1:
            return NumberCall(function=NumberFunction.ABS, operand=expression(rng, columns, FLOAT, depth))
        case 2:
            return Round(operand=expression(rng, columns, FLOAT, depth), precision=rng.choice([1, 2]))
        case _:
            return _binary(rng, columns, ARITHMETIC, FLOAT, depth)


def _bool(rng: Random, columns: Columns, depth: int) -> Node:
    match rng.randrange(5):
        case 0:
            return IsNull(operand=Ref(name=rng.choice(list(columns))))
        case 1:
            return Unary(op=UnaryOp.NOT, operand=expression(rng, columns, BOOL, depth))
        case 2:
            return _binary(rng, columns, [BinaryOp.AND, BinaryOp.OR], BOOL, depth)
        case _:
            return _binary(rng, columns, ORDERINGS, rng.choice([INT, FLOAT, STRING, DATETIME]), depth)  # type: ignore[arg-type]


def _string(rng: Random, columns: Columns, depth: int) -> Node:
    operand = expression(rng, columns, STRING, depth)
    match rng.randrange(3):
        case 0:
            return StringCall(
                function=StringFunction.CONCAT, operand=operand, args=(expression(rng, columns, STRING, depth),)
            )
        case 1:
            return NumberCall(function=NumberFunction.TO_STRING, operand=expression(rng, columns, INT, depth))
        case _:
            return StringCall(function=StringFunction.LOWER, operand=operand)


def _datetime(rng: Random, columns: Columns, depth: int) -> Node:
    return _of_any(rng, columns, DATETIME, depth)


def _binary(rng: Random, columns: Columns, ops: list[BinaryOp], dtype: DataType, depth: int) -> Node:
    return Binary(
        op=rng.choice(ops),
        left=expression(rng, columns, dtype, depth),
        right=expression(rng, columns, dtype, depth),
    )


_OF_TYPE = {INT: _int, FLOAT: _float, BOOL: _bool, STRING: _string, DATETIME: _datetime}
