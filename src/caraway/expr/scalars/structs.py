"""The `dict` and `struct` namespaces of single values, and the nodes that make structs."""

import operator
from typing import Any

from caraway.dtypes.types import INT, STRING, MapType, StructType, base_type
from caraway.expr.nodes import DictContains, DictGet, DictLen, MakeStruct, StructGet
from caraway.expr.scalars.operators import strict, strict2
from caraway.expr.scalars.scope import NoScalarFormError, Row, Scalar, ScalarScope, compile_node


@compile_node.register
def _(node: DictGet, scope: ScalarScope) -> Scalar:
    base = base_type(scope.type_of(node.operand) or MapType(INT))
    if not isinstance(base, MapType):
        raise NoScalarFormError("an entry of what is no dict")
    entries, keys = compile_node(node.operand, scope), scope.operand(node.key, STRING)
    default: Scalar = (lambda _row: None) if node.default is None else scope.operand(node.default, base.of)

    def get(row: Row) -> Any:
        value, key, other = entries(row), keys(row), default(row)
        return None if value is None or key is None else value.get(key, other)

    return get


@compile_node.register
def _(node: DictLen, scope: ScalarScope) -> Scalar:
    return strict(len, compile_node(node.operand, scope))


@compile_node.register
def _(node: DictContains, scope: ScalarScope) -> Scalar:
    return strict2(operator.contains, compile_node(node.operand, scope), scope.operand(node.key, STRING))


@compile_node.register
def _(node: StructGet, scope: ScalarScope) -> Scalar:
    found = scope.type_of(node.operand)
    base = None if found is None else base_type(found)
    if not isinstance(base, StructType):
        raise NoScalarFormError("a field of what is no struct")
    position = [name for name, _ in base.fields].index(node.field)
    return strict(operator.itemgetter(position), compile_node(node.operand, scope))


@compile_node.register
def _(node: MakeStruct, scope: ScalarScope) -> Scalar:
    given = dict(node.fields)
    fields = [scope.operand(given[name], dtype) for name, dtype in node.dtype.fields]
    return lambda row: [field(row) for field in fields]
