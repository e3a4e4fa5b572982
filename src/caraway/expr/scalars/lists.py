"""The `list` namespace of single values, lambdas, and the nodes that make lists."""

from collections.abc import Callable, Sequence
from typing import Any

from caraway.dtypes.types import BOOL, FLOAT, INT, DataType, ListType
from caraway.errors import InvalidInputError
from caraway.expr.inference import element_type
from caraway.expr.limits import check_count
from caraway.expr.nodes import ListAt, ListCall, ListContains, ListFilter, ListFunction, ListMap, Repeat, Zip
from caraway.expr.scalars.arithmetic import wrapped
from caraway.expr.scalars.operators import strict, strict2
from caraway.expr.scalars.scope import ELEMENT, NoScalarFormError, Row, Scalar, ScalarScope, compile_node, promotion
from caraway.expr.scalars.values import equality

Values = list[Any]


@compile_node.register
def _(node: ListCall, scope: ScalarScope) -> Scalar:
    function = _function(node.function, scope.element_of(node, node.operand))
    return strict(function, compile_node(node.operand, scope))


def _function(function: ListFunction, element: DataType) -> Callable[[Values], Any]:
    match function:
        case ListFunction.LEN:
            return len
        case ListFunction.HAS_NULL:
            return lambda values: None in values
        case ListFunction.ANY:
            return lambda values: True if True in values else None if None in values else False
        case ListFunction.ALL:
            return lambda values: None if None in values else False not in values
        case ListFunction.SUM:
            total: Callable[[Values], Any] = (lambda values: wrapped(sum(values))) if element == INT else added
            return lambda values: None if None in values else total(values)
        case ListFunction.MEAN:
            return lambda values: None if None in values or not values else added(values) / len(values)
        case ListFunction.MIN:
            return _extreme(min, element)
        case ListFunction.MAX:
            return _extreme(max, element)


def added(values: Sequence[float]) -> float:
    """Return the sum, added from the left; Python's own `sum` compensates rounding from 3.12 on."""
    total = 0.0
    for value in values:
        total += float(value)
    return total


def _extreme(choose: Callable[..., Any], element: DataType) -> Callable[[Values], Any]:
    def extreme(values: Values) -> Any:
        return None if None in values or not values else choose(values)

    def extreme_float(values: Values) -> float | None:
        if None in values or not values:
            return None
        # NaN is ordered after all numbers: the first item of the key is True only for NaN. Adding 0.0 turns -0.0 into
        # 0.0. The polars compiler has both rules too.
        found: float = choose(values, key=lambda value: (value != value, value))  # noqa: PLR0124
        return found + 0.0

    return extreme_float if element == FLOAT else extreme


@compile_node.register
def _(node: ListAt, scope: ScalarScope) -> Scalar:
    def at(values: Values, index: int) -> Any:
        return values[index] if -len(values) <= index < len(values) else None

    return strict2(at, compile_node(node.operand, scope), scope.operand(node.index, INT))


@compile_node.register
def _(node: ListContains, scope: ScalarScope) -> Scalar:
    element = scope.element_of(node, node.operand)
    lists, items = compile_node(node.operand, scope), scope.operand(node.item, element)
    equal = equality(element)

    def contains(row: Row) -> bool | None:
        values, item = lists(row), items(row)
        if values is None:
            return None
        if not values:
            return False
        if item is None:
            return None
        if any(value is not None and equal(value, item) for value in values):
            return True
        # The result is null (unknown) if an element is null, since a null may stand for any value.
        return None if None in values else False

    return contains


@compile_node.register
def _(node: ListFilter, scope: ScalarScope) -> Scalar:
    element = element_type(node, scope.type_of(node.operand))
    predicate = scope.in_lambda(node.variable, element).operand(node.predicate, BOOL)

    def filtered(values: Values, row: Row) -> Values:
        kept = []
        for value in values:
            row[ELEMENT] = value
            if predicate(row):
                kept.append(value)
        return kept

    return _over_elements(filtered, compile_node(node.operand, scope))


@compile_node.register
def _(node: ListMap, scope: ScalarScope) -> Scalar:
    element = element_type(node, scope.type_of(node.operand))
    body = compile_node(node.body, scope.in_lambda(node.variable, element))

    def mapped(values: Values, row: Row) -> Values:
        results = []
        for value in values:
            row[ELEMENT] = value
            results.append(body(row))
        return results

    return _over_elements(mapped, compile_node(node.operand, scope))


def _over_elements(function: Callable[[Values, Row], Values], operand: Scalar) -> Scalar:
    def evaluate(row: Row) -> Values | None:
        values = operand(row)
        return None if values is None else function(values, row)

    return evaluate


@compile_node.register
def _(node: Repeat, scope: ScalarScope) -> Scalar:
    result = scope.type_of(node)
    if not isinstance(result, ListType):
        raise NoScalarFormError("a repeat that is no list")
    value, count = scope.operand(node.value, result.of), scope.operand(node.by, INT)

    def repeated(row: Row) -> Values:
        item, times = value(row), count(row)
        if times is None:
            raise InvalidInputError("repeat(): the count is null")
        check_count(times)
        return [item] * times

    return repeated


@compile_node.register
def _(node: Zip, scope: ScalarScope) -> Scalar:
    """Cut the lists to the shortest, and make a struct of the elements at each position."""
    given, wanted = dict(node.fields), node.dtype.fields
    if not wanted:
        raise NoScalarFormError("a zip without fields")
    inputs = [compile_node(given[name], scope) for name, _ in wanted]
    converts = [promotion(scope.element_of(node, given[name]), to) for name, to in wanted]
    name = node.dtype.name

    def zipped(row: Row) -> Values:
        lists = [operand(row) for operand in inputs]
        if any(values is None for values in lists):
            raise InvalidInputError(f"zip(): a list for {name} is null")
        return [
            [
                item if convert is None or item is None else convert(item)
                for item, convert in zip(items, converts, strict=True)
            ]
            for items in zip(*lists, strict=False)
        ]

    return zipped
