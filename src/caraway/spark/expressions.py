"""Expressions to Spark columns.

What the nodes mean is in `caraway.expr.inference` (types) and in the specification of expressions: floor division and
modulo follow the divisor's sign, a float divided by zero is infinite or NaN, an integer is null, NaN equals NaN. Spark
differs in several of these points, with ANSI mode off as the session has it, and every difference is made up for here.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce, singledispatch

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import DataType, EmbeddingType, FloatType, ListType, base_type
from caraway.errors import DefinitionError
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
from caraway.spark.java import active_jvm, call_java
from caraway.spark.types import spark_type

_LONG_MIN = -(2**63)
# From here on every double is a whole number.
_WHOLE = float(2**53)
_LONG_END = float(2**63)

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_UNIT_US = {
    TimeUnit.WEEK: 7 * _DAY_US,
    TimeUnit.DAY: _DAY_US,
    TimeUnit.HOUR: 3_600 * _SECOND_US,
    TimeUnit.MINUTE: 60 * _SECOND_US,
    TimeUnit.SECOND: _SECOND_US,
    TimeUnit.MILLISECOND: 1_000,
    TimeUnit.MICROSECOND: 1,
    # A year is 365 days by definition, wherever it begins.
    TimeUnit.YEAR: 365 * _DAY_US,
}
_CALENDAR_PARTS = {
    TimeUnit.YEAR: F.year,
    TimeUnit.MONTH: F.month,
    TimeUnit.WEEK: F.weekofyear,
    TimeUnit.DAY: F.dayofmonth,
    TimeUnit.HOUR: F.hour,
    TimeUnit.MINUTE: F.minute,
    TimeUnit.SECOND: F.second,
}
_Operator = Callable[[Column, Column], Column]

_OPERATORS: Mapping[BinaryOp, _Operator] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.EQ: operator.eq,
    BinaryOp.NE: operator.ne,
    BinaryOp.LT: operator.lt,
    BinaryOp.LE: operator.le,
    BinaryOp.GT: operator.gt,
    BinaryOp.GE: operator.ge,
}
_STRINGS: Mapping[StringFunction, Callable[..., Column]] = {
    StringFunction.LOWER: F.lower,
    StringFunction.UPPER: F.upper,
    StringFunction.LEN: lambda text: F.char_length(text).cast("long"),
    StringFunction.CONTAINS: F.contains,
    StringFunction.STARTSWITH: F.startswith,
    StringFunction.ENDSWITH: F.endswith,
    StringFunction.CONCAT: F.concat,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """What names in an expression stand for: their types and their columns."""

    types: Mapping[str, DataType]
    columns: Mapping[str, Column]


def compile_as(node: Node, dtype: DataType, scope: Scope) -> Column:
    """Compile `node` and widen its value to `dtype` (an int to a float, a bare null to anything)."""
    return compile_node(node, scope).cast(spark_type(dtype))


@singledispatch
def compile_node(node: object, scope: Scope) -> Column:
    """Compile an expression, which has been type-checked, to a column over the columns of `scope`.

    Raises:
        DefinitionError: The expression has no meaning in a pipeline.
    """
    raise TypeError(f"no Spark column for {type(node).__name__} ({len(scope.columns)} columns in scope)")


@compile_node.register
def _(node: Ref, scope: Scope) -> Column:
    return scope.columns[node.name]


@compile_node.register
def _(node: Literal, scope: Scope) -> Column:  # noqa: ARG001 (the same signature for all)
    return F.lit(None) if node.dtype is None else _literal(node.value, node.dtype)


@compile_node.register
def _(node: Unary, scope: Scope) -> Column:
    operand = compile_node(node.operand, scope)
    match node.op:
        case UnaryOp.NOT:
            return ~operand
        case UnaryOp.NEGATE:
            return -operand


@compile_node.register
def _(node: Binary, scope: Scope) -> Column:
    if node.op is BinaryOp.AND:
        return compile_node(node.left, scope).cast("boolean") & compile_node(node.right, scope).cast("boolean")
    if node.op is BinaryOp.OR:
        return compile_node(node.left, scope).cast("boolean") | compile_node(node.right, scope).cast("boolean")
    kinds = {_kind(node.left, scope), _kind(node.right, scope)}
    floating = node.op is BinaryOp.DIV or FloatType in kinds
    left, right = compile_node(node.left, scope), compile_node(node.right, scope)
    if floating:
        left, right = left.cast("double"), right.cast("double")
    if node.op in _DIVISIONS:
        of_floats, of_ints = _DIVISIONS[node.op]
        return of_floats(left, right) if floating else of_ints(left, right)
    return _OPERATORS[node.op](left, right)


@compile_node.register
def _(node: IsNull, scope: Scope) -> Column:
    return compile_node(node.operand, scope).isNull()


@compile_node.register
def _(node: FillNull, scope: Scope) -> Column:
    dtype = infer_nullable(node, scope.types)
    return F.coalesce(_widened(node.operand, dtype, scope), _widened(node.fill, dtype, scope))


@compile_node.register
def _(node: When, scope: Scope) -> Column:
    dtype = infer_nullable(node, scope.types)
    otherwise = F.lit(None) if node.otherwise is None else _widened(node.otherwise, dtype, scope)
    return reduce(
        lambda rest, branch: F.when(
            compile_node(branch[0], scope).cast("boolean"), _widened(branch[1], dtype, scope)
        ).otherwise(rest),
        reversed(node.branches),
        otherwise,
    )


@compile_node.register
def _(node: NumberCall, scope: Scope) -> Column:
    operand = compile_node(node.operand, scope)
    return _number(node.function, operand, floating=_kind(node.operand, scope) is FloatType)


@compile_node.register
def _(node: Round, scope: Scope) -> Column:
    operand = compile_node(node.operand, scope)
    floating = _kind(node.operand, scope) is FloatType
    if node.precision == 0:
        return _to_long(F.round(operand, 0)) if floating else operand
    scale = float(10**node.precision)
    scaled = operand.cast("double") * scale
    # Beyond 2^53 nothing is left to round, and scaling could overflow.
    return F.when(F.abs(scaled) < _WHOLE, F.round(scaled, 0) / scale).otherwise(operand.cast("double"))


@compile_node.register
def _(node: StringCall, scope: Scope) -> Column:
    operands = [compile_node(operand, scope).cast("string") for operand in (node.operand, *node.args)]
    return _STRINGS[node.function](*operands)


@compile_node.register
def _(node: DatePart, scope: Scope) -> Column:
    micros = compile_node(node.operand, scope).cast("long")
    if node.part is TimeUnit.MICROSECOND:
        return F.pmod(micros, F.lit(_SECOND_US))
    if node.part is TimeUnit.MILLISECOND:
        return F.call_function("div", F.pmod(micros, F.lit(_SECOND_US)), F.lit(1_000))
    local = F.from_utc_timestamp(F.timestamp_micros(micros), node.timezone)
    return _CALENDAR_PARTS[node.part](local).cast("long")


@compile_node.register
def _(node: Since, scope: Scope) -> Column:
    return _elapsed(compile_node(node.operand, scope) - compile_node(node.start, scope), node.unit)


@compile_node.register
def _(node: SinceEpoch, scope: Scope) -> Column:
    return _elapsed(compile_node(node.operand, scope), node.unit)


@compile_node.register
def _(node: Now, scope: Scope) -> Column:  # noqa: ARG001 (the same signature for all)
    raise DefinitionError(
        "now() is the time of a query, and a pipeline runs before any query: use the time stamp column "
        f"of the dataset (columns here: {', '.join(scope.columns)})"
    )


def _kind(node: Node, scope: Scope) -> type | None:
    """Return the class of the node's type without optionality and restriction, None for a bare null."""
    dtype = infer_nullable(node, scope.types)
    return None if dtype is None else type(base_type(dtype))


def _widened(node: Node, dtype: DataType | None, scope: Scope) -> Column:
    return F.lit(None) if dtype is None else compile_as(node, dtype, scope)


def _literal(value: object, dtype: DataType) -> Column:
    if value is None:
        return F.lit(None).cast(spark_type(dtype))
    base = base_type(dtype)
    if isinstance(base, ListType | EmbeddingType) and isinstance(value, list | tuple):
        of = base.of if isinstance(base, ListType) else FloatType()
        return F.array(*(_literal(item, of) for item in value)).cast(spark_type(dtype))
    return F.lit(bytearray(value) if isinstance(value, bytes) else value).cast(spark_type(dtype))


def _divide(left: Column, right: Column) -> Column:
    """Divide as IEEE does; Spark gives null for a zero divisor, and only as text does it tell -0.0 from 0.0."""
    infinity = F.when(right.cast("string") == "-0.0", F.lit(float("-inf"))).otherwise(F.lit(float("inf")))
    return F.when(right == 0, left * infinity).otherwise(left / right)


def _floor(number: Column) -> Column:
    """Floor a double to a double; Spark's own gives a long and saturates."""
    return F.when(F.abs(number) < _WHOLE, F.floor(number).cast("double")).otherwise(number)


def _floor_divide(left: Column, right: Column) -> Column:
    rest = left % right
    correction = F.when((rest != 0) & ((rest < 0) != (right < 0)), F.lit(1)).otherwise(F.lit(0)).cast("long")
    return F.call_function("div", left, right) - correction


def _modulo(left: Column, right: Column) -> Column:
    rest = left % right
    return F.when((rest != 0) & ((rest < 0) != (right < 0)), rest + right).otherwise(rest)


def _float_modulo(left: Column, right: Column) -> Column:
    # The definition that both compilers share, whatever rounding makes of it.
    return left - _floor(_divide(left, right)) * right


_DIVISIONS: Mapping[BinaryOp, tuple[_Operator, _Operator]] = {
    BinaryOp.DIV: (_divide, _divide),
    BinaryOp.FLOOR_DIV: (lambda left, right: _floor(_divide(left, right)), _floor_divide),
    BinaryOp.MOD: (_float_modulo, _modulo),
}


def _to_long(number: Column) -> Column:
    """Convert a whole double; what no long can hold (NaN, which Spark orders last, included) is null."""
    return F.when((number >= -_LONG_END) & (number < _LONG_END), number.cast("long"))


def _number(function: NumberFunction, operand: Column, *, floating: bool) -> Column:
    match function:
        case NumberFunction.ABS:
            return F.abs(operand) if floating else F.when(operand != _LONG_MIN, F.abs(operand))
        case NumberFunction.CEIL:
            return _to_long(-_floor(-operand)) if floating else operand
        case NumberFunction.FLOOR:
            return _to_long(_floor(operand)) if floating else operand
        case NumberFunction.SQRT:
            return F.sqrt(operand.cast("double"))
        case NumberFunction.IS_NAN:
            return F.when(operand.isNotNull(), F.isnan(operand.cast("double")))
        case NumberFunction.IS_INFINITE:
            return F.abs(operand.cast("double")) == F.lit(float("inf"))
        case NumberFunction.TO_STRING:
            return _text(operand) if floating else operand.cast("string")


def _text(number: Column) -> Column:
    return call_java(active_jvm().io.caraway.Numbers.text(), number)


def _elapsed(micros: Column, unit: TimeUnit) -> Column:
    """Count whole units, truncated toward zero."""
    return F.call_function("div", micros, F.lit(_UNIT_US[unit]).cast("long"))
