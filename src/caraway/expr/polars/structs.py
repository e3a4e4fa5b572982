"""The `dict` and `struct` namespaces in polars, and the nodes that make structs.

In polars a dict is a list of entries, each of which is a struct of key and value.
"""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from caraway.dtypes.types import INT, STRING, MapType, base_type
from caraway.expr.nodes import DictContains, DictGet, DictLen, MakeStruct, StructGet
from caraway.expr.polars.scope import PolarsScope, compile_node
from caraway.expr.polars.series import Elements, Integers, null_where, of_array, of_columns, true_in
from caraway.expr.polars.values import polars_type


@compile_node.register
def _(node: DictGet, scope: PolarsScope) -> pl.Expr:
    base = base_type(scope.type_of(node.operand) or MapType(INT))
    assert isinstance(base, MapType)  # noqa: S101 (by inference)
    entries, key = compile_node(node.operand, scope), scope.operand(node.key, STRING)
    inputs = [entries, key]
    if node.default is not None:
        inputs.append(scope.operand(node.default, base.of))
    return of_columns(_values_at, inputs, base.of)


def _values_at(columns: list[pl.Series]) -> pl.Series:
    entries, keys = columns[:2]
    elements = Elements.of(entries)
    pairs = elements.values.to_arrow()
    positions = _positions(elements, pairs.field("key"), keys.to_arrow())
    values = of_array(pairs.field("value").take(pa.array(positions, mask=positions < 0)))
    if len(columns) == 2:
        return values
    # The default, `columns[2]`, replaces only the values of absent keys. A key that is present may have the value null.
    absent = (positions < 0) & elements.valid & ~null_where(keys)
    return columns[2].zip_with(pl.Series(absent), values)


def _positions(elements: Elements, found: pa.Array, wanted: pa.Array) -> Integers:
    """Return for each row the position of its key among the entries of all rows; -1 if its dict lacks the key."""
    rows = elements.rows()
    equal = np.flatnonzero(true_in(pc.equal(found, wanted.take(pa.array(rows)))))
    positions = np.full(len(wanted), -1, dtype=np.int64)
    positions[rows[equal]] = equal
    return positions


@compile_node.register
def _(node: DictLen, scope: PolarsScope) -> pl.Expr:
    return compile_node(node.operand, scope).list.len().cast(pl.Int64)


@compile_node.register
def _(node: DictContains, scope: PolarsScope) -> pl.Expr:
    keys = compile_node(node.operand, scope).list.eval(pl.element().struct.field("key"))
    key = scope.operand(node.key, STRING)
    return pl.when(keys.is_not_null() & key.is_not_null()).then(keys.list.contains(key))


@compile_node.register
def _(node: StructGet, scope: PolarsScope) -> pl.Expr:
    return compile_node(node.operand, scope).struct.field(node.field)


@compile_node.register
def _(node: MakeStruct, scope: PolarsScope) -> pl.Expr:
    given = dict(node.fields)
    if not given:
        return pl.lit(pl.Series([{}], dtype=polars_type(node.dtype))).first()
    return pl.struct([scope.operand(given[name], dtype).alias(name) for name, dtype in node.dtype.fields])
