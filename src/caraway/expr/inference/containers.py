"""Type rules of the `list`, `dict` and `struct` namespaces, and of the nodes that make lists and structs."""

import math

from caraway.dtypes import types as t
from caraway.errors import meant
from caraway.expr import nodes as n
from caraway.expr.inference.checks import (
    either_optional,
    infer_nullable,
    like,
    operand_type,
    operation_name,
    require,
    spell,
    takes,
    wrong,
)
from caraway.expr.inference.scopes import LambdaSchema, Schema
from caraway.expr.limits import MAX_REPEATED_TOGETHER
from caraway.expr.promotion import NUMBERS, promotes
from caraway.expr.references import walk


def element_type(node: n.Node, operand: t.DataType | None) -> t.DataType:
    """Return the type of a list's elements; an operand that is no list is an error of `node`."""
    base = None if operand is None else operand_type(operand)
    if not isinstance(base, t.ListType):
        raise takes(node, "a list", operand)
    return base.of


@infer_nullable.register
def _(node: n.ListCall, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    element = element_type(node, operand)
    match node.function:
        case n.ListFunction.LEN:
            return like(operand, t.INT)
        case n.ListFunction.HAS_NULL:
            return like(operand, t.BOOL)
        case n.ListFunction.SUM:
            return either_optional(_number(node, element), operand, element)
        case n.ListFunction.MIN | n.ListFunction.MAX:
            return t.optional(_number(node, element))
        case n.ListFunction.MEAN:
            _number(node, element)
            return t.optional(t.FLOAT)
        case n.ListFunction.ALL | n.ListFunction.ANY:
            if t.base_type(element) != t.BOOL:
                raise takes(node, "a list of bool", operand)
            return either_optional(t.BOOL, operand, element)


@infer_nullable.register
def _(node: n.ListAt, schema: Schema) -> t.DataType | None:
    element = element_type(node, infer_nullable(node.operand, schema))
    index = infer_nullable(node.index, schema)
    if index is not None and t.base_type(index) != t.INT:
        raise wrong(node, f"list.at() takes an int as the index, found {spell(index)}")
    return t.optional(element)


@infer_nullable.register
def _(node: n.ListContains, schema: Schema) -> t.DataType | None:
    operand, item = infer_nullable(node.operand, schema), infer_nullable(node.item, schema)
    element = element_type(node, operand)
    if item is not None and not promotes(t.base_type(item), t.base_type(element)):
        raise wrong(node, f"list.contains(): {spell(operand)} can't hold {spell(item)}")
    return either_optional(t.BOOL, operand, element, item)


@infer_nullable.register
def _(node: n.ListFilter, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    found = infer_nullable(node.predicate, _scope(node, schema, node.variable, element_type(node, operand)))
    if found != t.BOOL:
        hint = "; fill its nulls with fillnull()" if found == t.optional(t.BOOL) else ""
        raise wrong(node, f"the predicate of list.filter() is {spell(found)}, not bool{hint}")
    # The number of elements is part of an embedding's type. A filter may leave fewer of them, so the result is a list.
    return operand if operand is not None and not _is_embedding(operand) else like(operand, t.ListType(t.FLOAT))


@infer_nullable.register
def _(node: n.ListMap, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    body = infer_nullable(node.body, _scope(node, schema, node.variable, element_type(node, operand)))
    if body is None:
        raise wrong(node, "the type of null alone is not known; list.map() needs a body with a type")
    _check_growth(node)
    return like(operand, t.ListType(like(body, t.base_type(body))))


@infer_nullable.register
def _(node: n.Repeat, schema: Schema) -> t.DataType | None:
    value, by = infer_nullable(node.value, schema), infer_nullable(node.by, schema)
    if by is None or t.is_optional(by) or t.base_type(by) != t.INT:
        raise wrong(node, f"repeat() takes an int that is never null as the count, found {spell(by)}")
    if value is None:
        raise wrong(node, "the type of null alone is not known; repeat() needs a value with a type")
    _check_growth(node)
    return t.ListType(like(value, t.base_type(value)))


def _check_growth(node: n.Repeat | n.ListMap) -> None:
    """Check that several `repeat` within a node, which may multiply what each other makes, have small counts."""
    counts = [found.by for found in walk(node) if isinstance(found, n.Repeat)]
    known = [count.value for count in counts if isinstance(count, n.Literal) and isinstance(count.value, int)]
    if len(counts) > 1 and (len(known) < len(counts) or math.prod(known) > MAX_REPEATED_TOGETHER):
        raise wrong(
            node,
            "the counts of several repeat() in one list have to be constants whose product is at most "
            f"{MAX_REPEATED_TOGETHER:,}",
        )


@infer_nullable.register
def _(node: n.DictGet, schema: Schema) -> t.DataType | None:
    operand, key = infer_nullable(node.operand, schema), infer_nullable(node.key, schema)
    value = _value_type(node, operand)
    require(node, key, (t.STRING,))
    if node.default is None:
        return t.optional(value)
    default = infer_nullable(node.default, schema)
    if default is not None and not promotes(t.base_type(default), t.strip_optional(value)):
        raise wrong(node, f"the default of dict.get() is {spell(default)}, which {spell(operand)} can't hold")
    return either_optional(value, operand, key, default)


@infer_nullable.register
def _(node: n.DictLen, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    _value_type(node, operand)
    return like(operand, t.INT)


@infer_nullable.register
def _(node: n.DictContains, schema: Schema) -> t.DataType | None:
    operand, key = infer_nullable(node.operand, schema), infer_nullable(node.key, schema)
    _value_type(node, operand)
    require(node, key, (t.STRING,))
    return either_optional(t.BOOL, operand, key)


@infer_nullable.register
def _(node: n.StructGet, schema: Schema) -> t.DataType | None:
    operand = infer_nullable(node.operand, schema)
    base = None if operand is None else t.base_type(operand)
    if not isinstance(base, t.StructType):
        raise takes(node, "a struct", operand)
    fields = dict(base.fields)
    if node.field not in fields:
        known = ", ".join(fields) or "none"
        raise wrong(node, f'struct {base.name} has no field "{node.field}"{meant(node.field, fields)}; fields: {known}')
    return like(operand, fields[node.field])


@infer_nullable.register
def _(node: n.MakeStruct, schema: Schema) -> t.DataType | None:
    wanted = _matched(node)
    for name, value in node.fields:
        _require_field(node, name, infer_nullable(value, schema), wanted[name])
    return node.dtype


@infer_nullable.register
def _(node: n.Zip, schema: Schema) -> t.DataType | None:
    wanted = _matched(node)
    for name, value in node.fields:
        found = infer_nullable(value, schema)
        if found is None or t.is_optional(found) or not isinstance(operand_type(found), t.ListType):
            raise wrong(node, f"zip(): field {name} takes a list that is never null, found {spell(found)}")
        _require_field(node, name, element_type(node, found), wanted[name])
    return t.ListType(node.dtype)


def _number(node: n.ListCall, element: t.DataType) -> t.DataType:
    base = t.base_type(element)
    if base not in NUMBERS:
        raise takes(node, "a list of int or float", t.ListType(element))
    return base


def _scope(node: n.ListFilter | n.ListMap, schema: Schema, variable: str, element: t.DataType) -> LambdaSchema:
    if isinstance(schema, LambdaSchema):
        raise wrong(node, f"{operation_name(node)} can't stand in the body of another list.map() or list.filter()")
    return LambdaSchema(schema, variable, element)


def _is_embedding(dtype: t.DataType) -> bool:
    return isinstance(t.base_type(dtype), t.EmbeddingType)


def _value_type(node: n.Node, operand: t.DataType | None) -> t.DataType:
    base = None if operand is None else t.base_type(operand)
    if not isinstance(base, t.MapType):
        raise takes(node, "a dict", operand)
    return base.of


def _matched(node: n.MakeStruct | n.Zip) -> dict[str, t.DataType]:
    wanted, given = dict(node.dtype.fields), [name for name, _ in node.fields]
    missing, unknown = [name for name in wanted if name not in given], [name for name in given if name not in wanted]
    if missing or unknown:
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has no {', '.join(unknown)}"] * bool(unknown)
        fields = ", ".join(wanted) or "none"
        raise wrong(node, f"{operation_name(node)} of {node.dtype.name} {' and '.join(parts)}; its fields: {fields}")
    return wanted


def _require_field(node: n.Node, name: str, found: t.DataType | None, wanted: t.DataType) -> None:
    if not promotes(found, wanted):
        raise wrong(node, f"{operation_name(node)}: field {name} is {t.type_name(wanted)}, found {spell(found)}")
