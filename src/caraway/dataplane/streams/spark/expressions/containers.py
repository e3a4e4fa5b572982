"""The nodes of lists, dicts and structs."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.python import evaluated
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, comparable, compile_as, compile_node, widened
from caraway.dataplane.streams.spark.types import spark_type
from caraway.dtypes.types import FLOAT, INT, STRING, DataType, ListType, MapType, base_type
from caraway.expr import nodes as n
from caraway.expr.engines import python_reason
from caraway.expr.inference import operand_type
from caraway.expr.limits import MAX_REPEATED


@compile_node.register
def _(node: n.ListCall, scope: SparkScope) -> Column:
    items, of = compile_node(node.operand, scope), element_type(node.operand, scope)
    if node.function is n.ListFunction.LEN:
        return _size(items)
    if node.function is n.ListFunction.ANY:
        return F.exists(items, lambda item: item)
    has_null = F.exists(items, lambda item: item.isNull())
    if node.function is n.ListFunction.HAS_NULL:
        return has_null
    return F.when(~has_null, _folded(node.function, items, base_type(of)))


def _folded(function: n.ListFunction, items: Column, of: DataType) -> Column:
    """Fold a list without nulls. A least or greatest zero is 0.0, since sorting doesn't order 0.0 and -0.0."""
    zero = F.lit(0).cast(spark_type(of))
    match function:
        case n.ListFunction.SUM:
            return _sum(items, of)
        case n.ListFunction.MEAN:
            total = _sum(F.transform(items, lambda item: item.cast("double")), FLOAT)
            return F.when(F.size(items) > 0, total / F.size(items))
        case n.ListFunction.MIN:
            return F.array_min(items) + zero
        case n.ListFunction.MAX:
            return F.array_max(items) + zero
        case _:
            return F.forall(items, lambda item: item)


def _sum(items: Column, of: DataType) -> Column:
    zero = F.lit(0).cast(spark_type(of))
    return F.aggregate(items, zero, lambda total, item: total + item)


@compile_node.register
def _(node: n.ListAt, scope: SparkScope) -> Column:
    items, index = compile_node(node.operand, scope), compile_as(node.index, INT, scope)
    size = F.size(items)
    position = F.when(index < 0, index + size).otherwise(index)
    # Spark's `get` takes an index of 32 bits, so the cast would cut off the upper bits of a greater index. That is why
    # the index is first compared with the size, in 64 bits.
    return F.when((position >= 0) & (position < size), F.get(items, position.cast("int")))


@compile_node.register
def _(node: n.ListContains, scope: SparkScope) -> Column:
    of = element_type(node.operand, scope)
    items = compile_node(node.operand, scope)
    item = widened(compile_node(node.item, scope), scope.type_of(node.item), of)
    found = F.array_contains(comparable(items, ListType(of)), comparable(item, of))
    return F.when(F.size(items) == 0, F.lit(False)).when(items.isNotNull() & item.isNotNull(), found)


@compile_node.register
def _(node: n.ListFilter | n.ListMap, scope: SparkScope) -> Column:
    if python_reason(node) is not None:
        return evaluated(node, scope)
    of = element_type(node.operand, scope)
    apply, body = (F.filter, node.predicate) if isinstance(node, n.ListFilter) else (F.transform, node.body)
    return apply(
        compile_node(node.operand, scope), lambda item: compile_node(body, scope.body(node.variable, of, item))
    )


@compile_node.register
def _(node: n.DictGet, scope: SparkScope) -> Column:
    entries, key = compile_node(node.operand, scope), compile_as(node.key, STRING, scope)
    found = F.when(key.isNotNull(), F.try_element_at(entries, key))
    if node.default is None:
        return found
    default = compile_as(node.default, element_type(node.operand, scope), scope)
    return F.when(F.map_contains_key(entries, key), found).when(entries.isNotNull() & key.isNotNull(), default)


@compile_node.register
def _(node: n.DictLen, scope: SparkScope) -> Column:
    return _size(compile_node(node.operand, scope))


@compile_node.register
def _(node: n.DictContains, scope: SparkScope) -> Column:
    return F.map_contains_key(compile_node(node.operand, scope), compile_as(node.key, STRING, scope))


@compile_node.register
def _(node: n.StructGet, scope: SparkScope) -> Column:
    return compile_node(node.operand, scope).getField(node.field)


@compile_node.register
def _(node: n.MakeStruct, scope: SparkScope) -> Column:
    given = dict(node.fields)
    return F.struct(*(compile_as(given[name], dtype, scope).alias(name) for name, dtype in node.dtype.fields))


@compile_node.register
def _(node: n.Zip, scope: SparkScope) -> Column:
    given = dict(node.fields)
    lists = [_as_list(given[name], dtype, scope) for name, dtype in node.dtype.fields]
    shortest = F.array_min(F.array(*(F.size(items) for items in lists)))
    return F.slice(F.arrays_zip(*lists), 1, shortest).cast(spark_type(ListType(node.dtype)))


def _as_list(node: n.Node, of: DataType, scope: SparkScope) -> Column:
    element = element_type(node, scope)
    items = compile_node(node, scope)
    return F.transform(items, lambda item: widened(item, element, of))


@compile_node.register
def _(node: n.Repeat, scope: SparkScope) -> Column:
    value, by = compile_node(node.value, scope), compile_as(node.by, INT, scope)
    return F.when(by.between(0, MAX_REPEATED), F.array_repeat(value, by.cast("int")))


def _size(items: Column) -> Column:
    # Spark gives -1 for the size of a null list, and the language gives null.
    return F.when(items.isNotNull(), F.size(items).cast("long"))


def element_type(node: n.Node, scope: SparkScope) -> DataType:
    """Return the type of the elements of a list, or of the values of a dict."""
    dtype = scope.type_of(node)
    base = None if dtype is None else operand_type(dtype)
    assert isinstance(base, ListType | MapType)  # noqa: S101 (inference saw to it)
    return base.of
