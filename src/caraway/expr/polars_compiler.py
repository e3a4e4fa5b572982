"""Expressions as polars expressions: the read path, and the oracle for other compilers.

What polars leaves open is settled here, so that it can be built elsewhere: the division of floats by `//` is
`floor(l / r)` and their remainder `l - floor(l / r) * r`; ints wrap around; NaN equals NaN and is greater than all
else; a float is spelled in its shortest form, with an exponent below 1e-5 and from 1e16 on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import polars as pl

from caraway.dtypes.durations import US_PER_UNIT
from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    FloatType,
    base_type,
)
from caraway.dtypes.values import INT_MIN
from caraway.expr.inference import infer, infer_nullable
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
from caraway.expr.polars_values import INSTANT, polars_type, to_polars
from caraway.expr.references import columns_of

DIVISIONS = frozenset({BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD})

# From here on a double is an integer, so that rounding leaves it as it is.
ALL_INTEGERS = 2.0**52

# Comparisons with their sides exchanged.
MIRRORED = {
    BinaryOp.EQ: BinaryOp.EQ,
    BinaryOp.NE: BinaryOp.NE,
    BinaryOp.LT: BinaryOp.GT,
    BinaryOp.LE: BinaryOp.GE,
    BinaryOp.GT: BinaryOp.LT,
    BinaryOp.GE: BinaryOp.LE,
}

US_OF_UNIT = {
    TimeUnit.YEAR: US_PER_UNIT["y"],
    TimeUnit.WEEK: US_PER_UNIT["w"],
    TimeUnit.DAY: US_PER_UNIT["d"],
    TimeUnit.HOUR: US_PER_UNIT["h"],
    TimeUnit.MINUTE: US_PER_UNIT["m"],
    TimeUnit.SECOND: US_PER_UNIT["s"],
    TimeUnit.MILLISECOND: 1_000,
    TimeUnit.MICROSECOND: 1,
}


@dataclass(frozen=True)
class Scope:
    """What an expression may refer to: columns by type, and the time of the query."""

    schema: Mapping[str, DataType]
    now: pl.Expr | None

    def type_of(self, node: Node) -> DataType | None:
        """Return the type of a node; None for the null literal."""
        return infer_nullable(node, self.schema)

    def operand(self, node: Node, base: DataType) -> pl.Expr:
        """Compile a node as an operand of type `base`: null takes any type, an int becomes a float."""
        found = self.type_of(node)
        compiled = _compile(node, self)
        return compiled if found is not None and base_type(found) == base else compiled.cast(polars_type(base))


def compile_expr(node: Node, schema: Mapping[str, DataType], *, now: pl.Expr | int | None = None) -> pl.Expr:
    """Compile an expression over columns of the given types (`caraway.expr.polars_values.polars_type`).

    A result that isn't optional by type may still be null where a value can't be had, such as an int divided by zero;
    whoever needs a value checks for it.

    Args:
        node: The expression.
        schema: Types of the columns.
        now: What `now()` gives: instants, or microseconds since the epoch.

    Raises:
        DefinitionError: The expression is ill-typed.
    """
    infer(node, schema)
    moment = pl.lit(now, dtype=pl.Int64).cast(INSTANT) if isinstance(now, int) else now
    return _compile(node, Scope(schema=schema, now=moment))


def compile_as(
    node: Node, dtype: DataType, schema: Mapping[str, DataType], *, now: pl.Expr | int | None = None
) -> pl.Expr:
    """Compile an expression and convert its result to the type that it is declared to have.

    Raises:
        DefinitionError: The expression is ill-typed.
    """
    if isinstance(node, Literal) and node.dtype is None:
        return pl.lit(None, dtype=polars_type(dtype))
    compiled = compile_expr(node, schema, now=now)
    return compiled if base_type(infer(node, schema)) == base_type(dtype) else compiled.cast(polars_type(dtype))


@singledispatch
def _compile(node: Node, scope: Scope) -> pl.Expr:
    raise NotImplementedError(f"polars has no form for {type(node).__name__}")


@_compile.register
def _(node: Ref, _scope: Scope) -> pl.Expr:
    return pl.col(node.name)


@_compile.register
def _(node: Literal, _scope: Scope) -> pl.Expr:
    if node.value is None or node.dtype is None:
        return pl.lit(None)
    if base_type(node.dtype) in (INT, FLOAT, BOOL, STRING):
        return pl.lit(node.value, dtype=polars_type(node.dtype))
    if base_type(node.dtype) in (DATETIME, DATE):
        # Through an int: the first item of a series isn't always taken for a constant by polars.
        return pl.lit(node.value, dtype=pl.Int64).cast(polars_type(node.dtype))
    return pl.lit(to_polars("", [node.value], node.dtype)).first()


@_compile.register
def _(node: Unary, scope: Scope) -> pl.Expr:
    match node.op:
        case UnaryOp.NOT:
            return ~scope.operand(node.operand, BOOL)
        case UnaryOp.NEGATE:
            return -scope.operand(node.operand, _number_type(scope, node))


@_compile.register
def _(node: Binary, scope: Scope) -> pl.Expr:
    base = _operand_type(node, scope)
    left, right = scope.operand(node.left, base), scope.operand(node.right, base)
    if base == FLOAT and node.op in DIVISIONS and not columns_of(node.right):
        right = _as_column(right)
    mirrored = MIRRORED.get(node.op)
    if mirrored is not None and not columns_of(node.left):
        # polars gives one row for a constant text beside a column of nulls, but not the other way round.
        return _binary(mirrored, right, left)
    return _binary(node.op, left, right)


def _as_column(divisor: pl.Expr) -> pl.Expr:
    """Repeat a constant divisor for each row.

    polars divides by a single float by multiplying with its reciprocal, which gives other bits: 14.0 / 10.0 would be
    1.4000000000000001. It recognises a repeated constant, but not one less a computed zero, which has the same value.
    """
    zeros = pl.int_range(pl.len(), dtype=pl.Int64).cast(pl.Float64) * 0.0
    return divisor - zeros


def _binary(op: BinaryOp, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match op:
        case BinaryOp.ADD:
            return left + right
        case BinaryOp.SUB:
            return left - right
        case BinaryOp.MUL:
            return left * right
        case BinaryOp.DIV:
            return left / right
        case BinaryOp.FLOOR_DIV:
            return left // right
        case BinaryOp.MOD:
            return left % right
        case BinaryOp.EQ:
            return left == right
        case BinaryOp.NE:
            return left != right
        case BinaryOp.LT:
            return left < right
        case BinaryOp.LE:
            return left <= right
        case BinaryOp.GT:
            return left > right
        case BinaryOp.GE:
            return left >= right
        case BinaryOp.AND:
            return left & right
        case BinaryOp.OR:
            return left | right


def _operand_type(node: Binary, scope: Scope) -> DataType:
    """Return the type as which both operands take part."""
    if node.op in (BinaryOp.AND, BinaryOp.OR):
        return BOOL
    if node.op is BinaryOp.DIV:
        return FLOAT
    bases = [base_type(found) for side in (node.left, node.right) if (found := scope.type_of(side)) is not None]
    if not bases:
        return BOOL
    return FLOAT if FLOAT in bases else bases[0]


def _number_type(scope: Scope, node: Node) -> DataType:
    return base_type(infer(node, scope.schema))


@_compile.register
def _(node: IsNull, scope: Scope) -> pl.Expr:
    return _compile(node.operand, scope).is_null()


@_compile.register
def _(node: FillNull, scope: Scope) -> pl.Expr:
    result = scope.type_of(node)
    if result is None:
        return pl.lit(None)
    base = base_type(result)
    operand = scope.operand(node.operand, base)
    # Not coalesce(): with a constant first it gives one row instead of the frame's.
    return pl.when(operand.is_not_null()).then(operand).otherwise(scope.operand(node.fill, base))


@_compile.register
def _(node: When, scope: Scope) -> pl.Expr:
    result = scope.type_of(node)
    if result is None:
        return pl.lit(None)
    base = base_type(result)
    chain: pl.Expr = pl.lit(None, dtype=polars_type(base))
    if node.otherwise is not None:
        chain = scope.operand(node.otherwise, base)
    for predicate, value in reversed(node.branches):
        chain = pl.when(scope.operand(predicate, BOOL)).then(scope.operand(value, base)).otherwise(chain)
    return chain


@_compile.register
def _(node: NumberCall, scope: Scope) -> pl.Expr:
    found = scope.type_of(node.operand)
    base = INT if found is None else base_type(found)
    operand = scope.operand(node.operand, base)
    is_float = isinstance(base, FloatType)
    match node.function:
        case NumberFunction.ABS:
            # The least int has no absolute value.
            return operand.abs() if is_float else pl.when(operand != INT_MIN).then(operand.abs())
        case NumberFunction.CEIL:
            return _to_int(operand.ceil()) if is_float else operand
        case NumberFunction.FLOOR:
            return _to_int(operand.floor()) if is_float else operand
        case NumberFunction.SQRT:
            return operand.cast(pl.Float64).sqrt()
        case NumberFunction.IS_NAN:
            return operand.cast(pl.Float64).is_nan()
        case NumberFunction.IS_INFINITE:
            return operand.cast(pl.Float64).is_infinite()
        case NumberFunction.TO_STRING:
            text = operand.cast(pl.String)
            return text.str.replace("e+", "e", literal=True) if is_float else text


@_compile.register
def _(node: Round, scope: Scope) -> pl.Expr:
    found = scope.type_of(node.operand)
    if found is None or base_type(found) == INT:
        whole = scope.operand(node.operand, INT)
        return whole if node.precision == 0 else whole.cast(pl.Float64)
    operand = scope.operand(node.operand, FLOAT)
    if node.precision == 0:
        return _to_int(operand.round(0, mode="half_away_from_zero"))
    factor = 10.0**node.precision
    whole = (operand * factor).round(0, mode="half_away_from_zero")
    scaled = whole / _as_column(pl.lit(factor))
    return (
        pl.when((operand.abs() < ALL_INTEGERS) & ((operand * factor).abs() < ALL_INTEGERS))
        .then(scaled)
        .otherwise(operand)
    )


def _to_int(number: pl.Expr) -> pl.Expr:
    # NaN, infinities and what is beyond 64 bits have no int.
    return number.cast(pl.Int64, strict=False)


@_compile.register
def _(node: StringCall, scope: Scope) -> pl.Expr:
    text = scope.operand(node.operand, STRING)
    args = [scope.operand(arg, STRING) for arg in node.args]
    match node.function:
        case StringFunction.LOWER:
            return text.str.to_lowercase()
        case StringFunction.UPPER:
            return text.str.to_uppercase()
        case StringFunction.LEN:
            return text.str.len_chars().cast(pl.Int64)
        case StringFunction.CONTAINS:
            return text.str.contains(args[0], literal=True)
        case StringFunction.STARTSWITH:
            return text.str.starts_with(args[0])
        case StringFunction.ENDSWITH:
            return text.str.ends_with(args[0])
        case StringFunction.CONCAT:
            return text + args[0]


@_compile.register
def _(node: DatePart, scope: Scope) -> pl.Expr:
    local = scope.operand(node.operand, DATETIME).dt.convert_time_zone(node.timezone).dt
    match node.part:
        case TimeUnit.YEAR:
            part = local.year()
        case TimeUnit.MONTH:
            part = local.month()
        case TimeUnit.WEEK:
            part = local.week()
        case TimeUnit.DAY:
            part = local.day()
        case TimeUnit.HOUR:
            part = local.hour()
        case TimeUnit.MINUTE:
            part = local.minute()
        case TimeUnit.SECOND:
            part = local.second()
        case TimeUnit.MILLISECOND:
            part = local.millisecond()
        case TimeUnit.MICROSECOND:
            part = local.microsecond()
    return part.cast(pl.Int64)


@_compile.register
def _(node: Since, scope: Scope) -> pl.Expr:
    end, start = scope.operand(node.operand, DATETIME), scope.operand(node.start, DATETIME)
    return _whole_units(end.cast(pl.Int64) - start.cast(pl.Int64), node.unit)


@_compile.register
def _(node: SinceEpoch, scope: Scope) -> pl.Expr:
    return _whole_units(scope.operand(node.operand, DATETIME).cast(pl.Int64), node.unit)


def _whole_units(us: pl.Expr, unit: TimeUnit) -> pl.Expr:
    """Divide, truncating toward zero."""
    length = US_OF_UNIT[unit]
    return pl.when(us >= 0).then(us // length).otherwise(-((-us) // length))


@_compile.register
def _(_node: Now, scope: Scope) -> pl.Expr:
    if scope.now is None:
        raise NotImplementedError("now() has no value here; it is the time of a query")
    return scope.now
