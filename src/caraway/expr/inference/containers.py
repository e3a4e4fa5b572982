"""Types of lists, dicts and structs."""

from caraway.dtypes.types import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    DataType,
    EmbeddingType,
    ListType,
    MapType,
    StructType,
    base_type,
    is_optional,
    optional,
    strip_optional,
    type_name,
)
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
from caraway.expr.inference.scopes import LambdaSchema, Schema, within
from caraway.expr.promotion import NUMBERS, promotes


def element_type(node: n.Node, operand: DataType | None) -> DataType:
    """Return the type of the elements of a list, which the operand must be.

    Raises `DefinitionError` if the operand is no list.
    """
    base = None if operand is None else operand_type(operand)
    if not isinstance(base, ListType):
        raise takes(node, "a list", operand)
    return base.of


@infer_nullable.register
def _(node: n.ListCall, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    element = element_type(node, operand)
    match node.function:
        case n.ListFunction.LEN:
            return like(operand, INT)
        case n.ListFunction.HAS_NULL:
            return like(operand, BOOL)
        case n.ListFunction.SUM:
            return either_optional(_number(node, element), operand, element)
        case n.ListFunction.MIN | n.ListFunction.MAX:
            return optional(_number(node, element))
        case n.ListFunction.MEAN:
            _number(node, element)
            return optional(FLOAT)
        case n.ListFunction.ALL | n.ListFunction.ANY:
            if base_type(element) != BOOL:
                raise takes(node, "a list of bool", operand)
            return either_optional(BOOL, operand, element)


@infer_nullable.register
def _(node: n.ListAt, schema: Schema) -> DataType | None:
    element = element_type(node, infer_nullable(node.operand, schema))
    index = infer_nullable(node.index, schema)
    if index is not None and base_type(index) != INT:
        raise wrong(node, f"list.at() takes an int as the index, found {spell(index)}")
    return optional(element)


@infer_nullable.register
def _(node: n.ListContains, schema: Schema) -> DataType | None:
    operand, item = infer_nullable(node.operand, schema), infer_nullable(node.item, schema)
    element = element_type(node, operand)
    if item is not None and not promotes(base_type(item), base_type(element)):
        raise wrong(node, f"list.contains(): {spell(operand)} can't hold {spell(item)}")
    return either_optional(BOOL, operand, element, item)


@infer_nullable.register
def _(node: n.ListFilter, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    found = infer_nullable(node.predicate, _scope(node, schema, node.variable, element_type(node, operand)))
    if found != BOOL:
        hint = "; fill its nulls with fillnull()" if found == optional(BOOL) else ""
        raise wrong(node, f"the predicate of list.filter() is {spell(found)}, not bool{hint}")
    # A filtered embedding may have fewer elements, so it is a list.
    return operand if operand is not None and not _is_embedding(operand) else like(operand, ListType(FLOAT))


@infer_nullable.register
def _(node: n.ListMap, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    body = infer_nullable(node.body, _scope(node, schema, node.variable, element_type(node, operand)))
    if body is None:
        raise wrong(node, "the type of null alone is not known; list.map() needs a body with a type")
    return like(operand, ListType(like(body, base_type(body))))


@infer_nullable.register
def _(node: n.Repeat, schema: Schema) -> DataType | None:
    value, by = infer_nullable(node.value, schema), infer_nullable(node.by, schema)
    if by is None or is_optional(by) or base_type(by) != INT:
        raise wrong(node, f"repeat() takes an int that is never null as the count, found {spell(by)}")
    if value is None:
        raise wrong(node, "the type of null alone is not known; repeat() needs a value with a type")
    return ListType(like(value, base_type(value)))


@infer_nullable.register
def _(node: n.DictGet, schema: Schema) -> DataType | None:
    operand, key = infer_nullable(node.operand, schema), infer_nullable(node.key, schema)
    value = _value_type(node, operand)
    require(node, key, (STRING,))
    if node.default is None:
        return optional(value)
    default = infer_nullable(node.default, schema)
    if default is not None and not promotes(base_type(default), strip_optional(value)):
        raise wrong(node, f"the default of dict.get() is {spell(default)}, which {spell(operand)} can't hold")
    return either_optional(value, operand, key, default)


@infer_nullable.register
def _(node: n.DictLen, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    _value_type(node, operand)
    return like(operand, INT)


@infer_nullable.register
def _(node: n.DictContains, schema: Schema) -> DataType | None:
    operand, key = infer_nullable(node.operand, schema), infer_nullable(node.key, schema)
    _value_type(node, operand)
    require(node, key, (STRING,))
    return either_optional(BOOL, operand, key)


@infer_nullable.register
def _(node: n.StructGet, schema: Schema) -> DataType | None:
    operand = infer_nullable(node.operand, schema)
    base = None if operand is None else base_type(operand)
    if not isinstance(base, StructType):
        raise takes(node, "a struct", operand)
    fields = dict(base.fields)
    if node.field not in fields:
        raise wrong(node, f'struct {base.name} has no field "{node.field}"; fields: {", ".join(fields) or "none"}')
    return like(operand, fields[node.field])


@infer_nullable.register
def _(node: n.MakeStruct, schema: Schema) -> DataType | None:
    wanted = _matched(node)
    for name, value in node.fields:
        _require_field(node, name, infer_nullable(value, schema), wanted[name])
    return node.dtype


@infer_nullable.register
def _(node: n.Zip, schema: Schema) -> DataType | None:
    wanted = _matched(node)
    for name, value in node.fields:
        found = infer_nullable(value, schema)
        if found is None or is_optional(found) or not isinstance(operand_type(found), ListType):
            raise wrong(node, f"zip(): field {name} takes a list that is never null, found {spell(found)}")
        _require_field(node, name, element_type(node, found), wanted[name])
    return ListType(node.dtype)


def _number(node: n.ListCall, element: DataType) -> DataType:
    base = base_type(element)
    if base not in NUMBERS:
        raise takes(node, "a list of int or float", ListType(element))
    return base


def _scope(node: n.ListFilter | n.ListMap, schema: Schema, variable: str, element: DataType) -> LambdaSchema:
    if isinstance(schema, LambdaSchema):
        raise wrong(node, f"{operation_name(node)} can't stand in the body of another list.map() or list.filter()")
    return within(schema, variable, element)


def _is_embedding(dtype: DataType) -> bool:
    return isinstance(base_type(dtype), EmbeddingType)


def _value_type(node: n.Node, operand: DataType | None) -> DataType:
    base = None if operand is None else base_type(operand)
    if not isinstance(base, MapType):
        raise takes(node, "a dict", operand)
    return base.of


def _matched(node: n.MakeStruct | n.Zip) -> dict[str, DataType]:
    wanted, given = dict(node.dtype.fields), [name for name, _ in node.fields]
    missing, unknown = [name for name in wanted if name not in given], [name for name in given if name not in wanted]
    if missing or unknown:
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has no {', '.join(unknown)}"] * bool(unknown)
        fields = ", ".join(wanted) or "none"
        raise wrong(node, f"{operation_name(node)} of {node.dtype.name} {' and '.join(parts)}; its fields: {fields}")
    return wanted


def _require_field(node: n.Node, name: str, found: DataType | None, wanted: DataType) -> None:
    if not promotes(found, wanted):
        raise wrong(node, f"{operation_name(node)}: field {name} is {type_name(wanted)}, found {spell(found)}")
