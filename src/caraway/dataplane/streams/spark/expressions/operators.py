"""References, constants, operators and choices."""

import operator
from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.arithmetic import DIVISIONS
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, comparable, compile_as, compile_node, kind
from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes import types as t
from caraway.errors import DefinitionError
from caraway.expr import nodes as n

_OPERATORS: Mapping[n.BinaryOp, Callable[[Column, Column], Column]] = {
    n.BinaryOp.ADD: operator.add,
    n.BinaryOp.SUB: operator.sub,
    n.BinaryOp.MUL: operator.mul,
    n.BinaryOp.EQ: operator.eq,
    n.BinaryOp.NE: operator.ne,
    n.BinaryOp.LT: operator.lt,
    n.BinaryOp.LE: operator.le,
    n.BinaryOp.GT: operator.gt,
    n.BinaryOp.GE: operator.ge,
    n.BinaryOp.AND: operator.and_,
    n.BinaryOp.OR: operator.or_,
}


@compile_node.register
def _(node: n.Ref, scope: SparkScope) -> Column:
    return scope.columns[node.name]


@compile_node.register
def _(node: n.Var, scope: SparkScope) -> Column:
    if scope.element is None:
        raise DefinitionError(f'var("{node.name}") has a meaning only in the body of list.map() or list.filter()')
    return scope.element


@compile_node.register
def _(node: n.Now, scope: SparkScope) -> Column:  # noqa: ARG001 (the same signature for all)
    raise DefinitionError(
        "now() is the time of a query, and a pipeline runs before any query: use the time stamp column "
        f"of the dataset (columns here: {', '.join(scope.columns)})"
    )


@compile_node.register
def _(node: n.Literal, scope: SparkScope) -> Column:  # noqa: ARG001 (the same signature for all)
    return F.lit(None) if node.dtype is None else literal(node.value, node.dtype)


@compile_node.register
def _(node: n.Unary, scope: SparkScope) -> Column:
    match node.op:
        case n.UnaryOp.NOT:
            return ~compile_as(node.operand, t.BOOL, scope)
        case n.UnaryOp.NEGATE:
            return -compile_node(node.operand, scope)


@compile_node.register
def _(node: n.Binary, scope: SparkScope) -> Column:
    if node.op in (n.BinaryOp.AND, n.BinaryOp.OR):
        return _OPERATORS[node.op](compile_as(node.left, t.BOOL, scope), compile_as(node.right, t.BOOL, scope))
    floating = node.op is n.BinaryOp.DIV or t.FloatType in (kind(node.left, scope), kind(node.right, scope))
    left, right = _side(node.left, scope), _side(node.right, scope)
    if floating:
        left, right = left.cast("double"), right.cast("double")
    if node.op in DIVISIONS:
        of_floats, of_ints = DIVISIONS[node.op]
        return of_floats(left, right) if floating else of_ints(left, right)
    return _OPERATORS[node.op](left, right)


@compile_node.register
def _(node: n.IsNull, scope: SparkScope) -> Column:
    return compile_node(node.operand, scope).isNull()


@compile_node.register
def _(node: n.FillNull, scope: SparkScope) -> Column:
    dtype = scope.type_of(node)
    return F.coalesce(_branch(node.operand, dtype, scope), _branch(node.fill, dtype, scope))


@compile_node.register
def _(node: n.When, scope: SparkScope) -> Column:
    dtype = scope.type_of(node)
    otherwise = F.lit(None) if node.otherwise is None else _branch(node.otherwise, dtype, scope)
    return reduce(
        lambda rest, branch: F.when(compile_as(branch[0], t.BOOL, scope), _branch(branch[1], dtype, scope)).otherwise(
            rest
        ),
        reversed(node.branches),
        otherwise,
    )


def literal(value: object, dtype: t.DataType) -> Column:
    """Return a constant of a type, given in stored form (docs/inside/records.md)."""
    stored = spark_type(dtype)
    base = t.base_type(dtype)
    match value:
        case None:
            return F.lit(None).cast(stored)
        case bytes():
            return F.lit(bytearray(value))
        case Mapping() if isinstance(base, t.MapType):
            entries = [part for key, item in value.items() for part in (F.lit(key), literal(item, base.of))]
            return F.create_map(*entries).cast(stored)
        case list() | tuple() if isinstance(base, t.StructType):
            fields = zip(base.fields, value, strict=True)
            return F.struct(*(literal(item, of).alias(name) for (name, of), item in fields))
        case list() | tuple():
            of = base.of if isinstance(base, t.ListType) else t.FloatType()
            assert isinstance(base, t.ListType | t.EmbeddingType)  # noqa: S101 (no other type stores a list)
            return F.array(*(literal(item, of) for item in value)).cast(stored)
        case _:
            return F.lit(value).cast(stored)


def _side(node: n.Node, scope: SparkScope) -> Column:
    column, dtype = compile_node(node, scope), scope.type_of(node)
    return column if dtype is None else comparable(column, dtype)


def _branch(node: n.Node, dtype: t.DataType | None, scope: SparkScope) -> Column:
    return F.lit(None) if dtype is None else compile_as(node, dtype, scope)
