"""The `list` namespace in polars, lambdas, and the nodes that make lists.

Sums and means of floats add the elements from the left, beginning with 0.0; the mean of ints is the mean of their
doubles. For minimum and maximum NaN is greater than all numbers, and a result of -0.0 becomes 0.0.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from caraway.dtypes.types import BOOL, INT, ListType
from caraway.errors import DefinitionError, InvalidInputError
from caraway.expr.inference import element_type
from caraway.expr.limits import check_count
from caraway.expr.nodes import ListAt, ListCall, ListContains, ListFilter, ListFunction, ListMap, Repeat, Zip
from caraway.expr.polars.scope import ELEMENT, PolarsScope, as_column, compile_node, widened
from caraway.expr.polars.series import Elements, lists_of, null_where, of_array, of_columns, true_where
from caraway.expr.references import columns_of

# Indexes are clipped to this number, because polars fails at the least 64-bit int. No list is as long.
FAR = 2**62
BODY = "__caraway body"


@compile_node.register
def _(node: ListCall, scope: PolarsScope) -> pl.Expr:
    element = scope.element_of(node, node.operand)
    operand = compile_node(node.operand, scope)
    of = operand.list
    has_null = of.drop_nulls().list.len() != of.len()
    match node.function:
        case ListFunction.LEN:
            return of.len().cast(pl.Int64)
        case ListFunction.HAS_NULL:
            return has_null
        case ListFunction.SUM:
            return pl.when(~has_null).then(of.sum() if element == INT else _float_sum(operand))
        case ListFunction.MEAN:
            count = of.len().cast(pl.Float64)
            total = _float_sum(operand.cast(pl.List(pl.Float64)))
            mean = total / (count if columns_of(node.operand) else as_column(count))
            return pl.when(~has_null & (of.len() > 0)).then(mean)
        case ListFunction.MIN:
            return pl.when(~has_null).then(of.min() if element == INT else _unsigned(of.sort().list.first()))
        case ListFunction.MAX:
            return pl.when(~has_null).then(of.max() if element == INT else _unsigned(of.sort().list.last()))
        case ListFunction.ALL:
            return pl.when(~has_null).then(of.contains(False).not_())
        case ListFunction.ANY:
            found = of.contains(True)
            return pl.when(operand.is_not_null() & (found | ~has_null)).then(found)


def _float_sum(floats: pl.Expr) -> pl.Expr:
    """Return sums that add from the left; polars's own sum adds in 16 parallel stripes, which rounds differently."""
    total = floats.list.eval(pl.element().cum_sum()).list.last()
    return pl.when(floats.list.len() == 0).then(pl.lit(0.0)).otherwise(total)


def _unsigned(number: pl.Expr) -> pl.Expr:
    # A condition turns -0.0 into 0.0. Adding 0.0 isn't enough, since polars leaves the addition out in some plans.
    return pl.when(number == 0.0).then(pl.lit(0.0)).otherwise(number)


@compile_node.register
def _(node: ListAt, scope: PolarsScope) -> pl.Expr:
    index = scope.operand(node.index, INT).clip(-FAR, FAR)
    return compile_node(node.operand, scope).list.get(index, null_on_oob=True)


@compile_node.register
def _(node: ListContains, scope: PolarsScope) -> pl.Expr:
    element = scope.element_of(node, node.operand)
    lists, item = compile_node(node.operand, scope), scope.operand(node.item, element)

    def contains(columns: list[pl.Series]) -> pl.Series:
        elements = Elements.of(columns[0])
        equal = elements.values == columns[1].gather(elements.rows())
        found = elements.rows_with(true_where(equal))
        # The result is null (unknown) if an element or the item is null, since a null may stand for any value.
        unknown = elements.rows_with(null_where(equal)) & ~found
        return of_array(pa.array(found, mask=~elements.valid | unknown))

    return of_columns(contains, [lists, item], BOOL)


@compile_node.register
def _(node: ListFilter, scope: PolarsScope) -> pl.Expr:
    element = element_type(node, scope.type_of(node.operand))
    predicate = scope.in_lambda(node.variable, element).operand(node.predicate, BOOL)
    return _over_elements(node, scope, predicate, lambda elements, kept: elements.filtered(kept))


@compile_node.register
def _(node: ListMap, scope: PolarsScope) -> pl.Expr:
    element = element_type(node, scope.type_of(node.operand))
    body = compile_node(node.body, scope.in_lambda(node.variable, element))
    return _over_elements(node, scope, body, lambda elements, values: elements.with_values(values))


def _over_elements(
    node: ListFilter | ListMap, scope: PolarsScope, body: pl.Expr, combine: Callable[[Elements, pl.Series], pl.Series]
) -> pl.Expr:
    """Evaluate the body of a lambda over all elements of all rows at once, each with the columns of its row.

    The `list.eval` of polars isn't used, because the body can't refer to columns in it.
    """
    outer = [name for name in dict.fromkeys(body.meta.root_names()) if name != ELEMENT]

    def compute(columns: list[pl.Series]) -> pl.Series:
        elements = Elements.of(columns[0])
        frame = pl.DataFrame([elements.values.alias(ELEMENT)])
        if outer:
            frame = frame.hstack(pl.DataFrame(columns[1:])[elements.rows()])
        return combine(elements, frame.with_columns(body.alias(BODY))[BODY])

    lists = compile_node(node.operand, scope)
    result = scope.type_of(node)
    assert result is not None  # noqa: S101 (a list)
    return of_columns(compute, [lists, *map(pl.col, outer)], result)


@compile_node.register
def _(node: Repeat, scope: PolarsScope) -> pl.Expr:
    result = scope.type_of(node)
    assert isinstance(result, ListType)  # noqa: S101 (by inference)
    return of_columns(_repeated, [scope.operand(node.value, result.of), scope.operand(node.by, INT)], result)


def _repeated(columns: list[pl.Series]) -> pl.Series:
    values, counts = columns
    if counts.null_count():
        raise InvalidInputError("repeat(): the count is null")
    lengths = counts.to_numpy()
    for extreme in (lengths.min(initial=0), lengths.max(initial=0)):
        check_count(int(extreme))
    return lists_of(values.gather(np.repeat(np.arange(len(lengths)), lengths)), lengths)


@compile_node.register
def _(node: Zip, scope: PolarsScope) -> pl.Expr:
    """Cut the lists to the shortest, and make a struct of the elements at each position."""
    given, wanted = dict(node.fields), node.dtype.fields
    if not wanted:
        raise DefinitionError(f"zip() of {node.dtype.name}, which has no fields, has no length")
    inputs = [compile_node(given[name], scope) for name, _ in wanted]
    found = [scope.element_of(node, given[name]) for name, _ in wanted]
    made = pl.struct([widened(pl.col(name), of, to).alias(name) for (name, to), of in zip(wanted, found, strict=True)])

    def zipped(columns: list[pl.Series]) -> pl.Series:
        if any(column.null_count() for column in columns):
            raise InvalidInputError(f"zip(): a list for {node.dtype.name} is null")
        lists = [Elements.of(column) for column in columns]
        lengths = np.minimum.reduce([elements.lengths for elements in lists])
        flat = [elements.first(lengths) for elements in lists]
        frame = pl.DataFrame([values.alias(name) for values, (name, _) in zip(flat, wanted, strict=True)])
        return lists_of(frame.select(made.alias(BODY))[BODY], lengths)

    return of_columns(zipped, inputs, ListType(node.dtype))
