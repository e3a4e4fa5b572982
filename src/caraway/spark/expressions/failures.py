"""Rows at which an expression fails.

polars fails the whole evaluation at a text that can't be parsed, a negative count, an int divided by zero where null
isn't allowed. A stream goes on: the value of such a row is null, and a second column tells that it failed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.dtypes.types import (
    DATETIME,
    INT,
    BetweenType,
    DataType,
    OneOfType,
    RegexType,
    StructType,
    base_type,
    is_optional,
    strip_optional,
)
from caraway.expr.engines import python_reason
from caraway.expr.nodes import ListFilter, ListMap, Node, Power, Repeat, Strftime, Strptime, Zip
from caraway.expr.references import children
from caraway.spark.expressions.containers import element_type
from caraway.spark.expressions.python import fails_in_python
from caraway.spark.expressions.scope import Scope, compile_as, compile_node, is_float, widened
from caraway.spark.expressions.writing import in_calendar


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of each row.

    Attributes:
        value: The value; null where the evaluation fails.
        failed: Whether it fails; never null.
    """

    value: Column
    failed: Column


def compile_with_failure(node: Node, dtype: DataType, scope: Scope) -> Outcome:
    """Compile `node`, widened to `dtype`, with the condition under which the in-process engine refuses the row.

    Beside failures of evaluation these are nulls that `dtype` doesn't allow, and values outside of its restriction.
    """
    source = scope.type_of(node)
    compiled = compile_node(node, scope)
    value = widened(compiled, source, dtype)
    conditions = [*_failures(node, scope), *_violations(value, source, dtype)]
    failed = reduce(lambda a, b: a | b, (F.coalesce(c, F.lit(False)) for c in conditions), F.lit(False))  # noqa: FBT003
    return Outcome(value=F.when(~failed, value) if conditions else value, failed=failed)


def _failures(node: Node, scope: Scope) -> Iterator[Column]:
    """Yield the conditions under which the evaluation of a node, or of one below it, fails."""
    if python_reason(node) is not None:
        yield fails_in_python(node, scope)
        return
    match node:
        case (
            ListMap(operand=operand, variable=variable, body=body)
            | ListFilter(operand=operand, variable=variable, predicate=body)
        ):
            yield from _failures(operand, scope)
            yield from _body_failures(operand, variable, body, scope)
            return
        case Strptime():
            yield compile_node(node.operand, scope).isNotNull() & compile_node(node, scope).isNull()
        case Strftime():
            yield ~in_calendar(compile_as(node.operand, DATETIME, scope), node.timezone)
        case Repeat():
            yield ~F.coalesce(compile_as(node.by, INT, scope) >= 0, F.lit(False))  # noqa: FBT003 (a value)
        case Zip(fields=given):
            yield reduce(lambda a, b: a | b, (compile_node(of, scope).isNull() for _, of in given))
        case Power() if not is_float(node.operand, scope) and not is_float(node.exponent, scope):
            yield compile_node(node.operand, scope).isNotNull() & (compile_as(node.exponent, INT, scope) < 0)
        case _:
            pass
    for child in children(node):
        yield from _failures(child, scope)


def _body_failures(operand: Node, variable: str, body: Node, scope: Scope) -> Iterator[Column]:
    of = element_type(operand, scope)

    def in_body(item: Column) -> list[Column]:
        return list(_failures(body, scope.body(variable, of, item)))

    def fails(position: int) -> Callable[[Column], Column]:
        return lambda item: F.coalesce(in_body(item)[position], F.lit(False))  # noqa: FBT003 (a value)

    # What can fail is the same for all elements; only the column of the element differs.
    for position in range(len(in_body(F.lit(None)))):
        yield F.exists(compile_node(operand, scope), fails(position))


def _violations(value: Column, source: DataType | None, target: DataType) -> Iterator[Column]:
    """Yield the conditions under which a value isn't of the type that it is declared to have."""
    if not is_optional(target):
        yield value.isNull()
    if source is not None and strip_optional(source) == strip_optional(target):
        return
    match strip_optional(target):
        case BetweenType(_, low, high, strict_low, strict_high):
            yield (value <= low) if strict_low else (value < low)
            yield (value >= high) if strict_high else (value > high)
        case OneOfType(_, options):
            yield ~value.isin(*options)
        case RegexType(pattern):
            yield ~F.rlike(value, F.lit(rf"\A(?:{pattern})\z"))
        case StructType(_, wanted) if source is not None and isinstance(found := base_type(source), StructType):
            types = dict(found.fields)
            for name, dtype in wanted:
                for condition in _violations(value.getField(name), types[name], dtype):
                    yield value.isNotNull() & condition
        case _:
            pass
