"""Rows at which an expression fails.

polars fails the whole evaluation at a text that can't be parsed, a negative count, or an int divided by zero where null
isn't allowed. A stream must go on: the value of such a row is null, and a second column is true.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.containers import element_type
from caraway.dataplane.streams.spark.expressions.python import fails_in_python
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node, is_float
from caraway.dataplane.streams.spark.expressions.writing import in_calendar
from caraway.dtypes import types as t
from caraway.expr import nodes as n
from caraway.expr.engines import python_reason
from caraway.expr.limits import MAX_CHARACTERS, MAX_REPEATED
from caraway.expr.nodes import ListFilter, ListMap, Node, Power, Repeat, Strftime, Strptime, Zip
from caraway.expr.references import children


@dataclass(frozen=True, slots=True)
class Outcome:
    """The columns that an expression is compiled to.

    Attributes:
        value: The value; null where the evaluation fails.
        failed: True where the evaluation fails; never null.
    """

    value: Column
    failed: Column


def compile_with_failure(node: Node, dtype: t.DataType, scope: SparkScope) -> Outcome:
    """Compile `node`, widened to `dtype`, and the condition under which the in-process engine refuses the row.

    The engine refuses a row whose evaluation fails, whose value is null where `dtype` doesn't allow that, or whose
    value is outside of the restriction of `dtype`.
    """
    value = compile_as(node, dtype, scope)
    conditions = [*_failures(node, scope), *_violations(value, dtype)]
    failed = _any(conditions)
    return Outcome(value=F.when(~failed, value) if conditions else value, failed=failed)


def _failures(node: Node, scope: SparkScope) -> Iterator[Column]:
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
            yield ~in_calendar(compile_as(node.operand, t.DATETIME, scope), node.timezone)
        case Repeat():
            yield ~F.coalesce(compile_as(node.by, t.INT, scope).between(0, MAX_REPEATED), F.lit(False))
        case n.StringCall(function=n.StringFunction.CONCAT):
            # The conditions of the parts come first. If one of them holds, Spark doesn't compute the lengths, so it
            # never builds a part that is itself too long.
            for part in children(node):
                yield from _failures(part, scope)
            texts = (compile_as(part, t.STRING, scope) for part in _concatenated(node))
            yield reduce(add, map(F.char_length, texts)) > MAX_CHARACTERS
            return
        case Zip(fields=given):
            yield reduce(lambda a, b: a | b, (compile_node(of, scope).isNull() for _, of in given))
        case Power() if not is_float(node.operand, scope) and not is_float(node.exponent, scope):
            yield compile_node(node.operand, scope).isNotNull() & (compile_as(node.exponent, t.INT, scope) < 0)
        case _:
            pass
    for child in children(node):
        yield from _failures(child, scope)


def _concatenated(node: Node) -> Iterator[Node]:
    """Yield the texts of which a concatenation is made, in order."""
    match node:
        case n.StringCall(function=n.StringFunction.CONCAT):
            for part in children(node):
                yield from _concatenated(part)
        case _:
            yield node


def _body_failures(operand: Node, variable: str, body: Node, scope: SparkScope) -> Iterator[Column]:
    of = element_type(operand, scope)

    def in_body(item: Column) -> list[Column]:
        return list(_failures(body, scope.body(variable, of, item)))

    def fails(position: int) -> Callable[[Column], Column]:
        return lambda item: F.coalesce(in_body(item)[position], F.lit(False))

    # The number of conditions is the same for all elements, so it is counted with null as the element.
    for position in range(len(in_body(F.lit(None)))):
        yield F.exists(compile_node(operand, scope), fails(position))


def _violations(value: Column, dtype: t.DataType) -> list[Column]:
    """Return the conditions, at any depth, under which a value isn't of a type by `caraway.dtypes.values`."""
    found = [] if t.is_optional(dtype) else [value.isNull()]
    match t.strip_optional(dtype):
        case t.BetweenType(_, low, high, strict_low, strict_high):
            found += [value <= low if strict_low else value < low, value >= high if strict_high else value > high]
        case t.OneOfType(_, options):
            found.append(~value.isin(*options))
        case t.RegexType(pattern):
            found.append(~F.rlike(value, F.lit(rf"\A(?:{pattern})\z")))
        case t.ListType(of) if _violations(value, of):
            found.append(F.exists(value, lambda item: _any(_violations(item, of))))
        case t.MapType(of) if _violations(value, of):
            found.append(F.exists(F.map_values(value), lambda item: _any(_violations(item, of))))
        case t.StructType(_, fields):
            inside = [found for name, of in fields for found in _violations(value.getField(name), of)]
            found += [value.isNotNull() & condition for condition in inside]
        case _:
            pass
    return found


def _any(conditions: Sequence[Column]) -> Column:
    false = F.lit(False)
    return reduce(lambda a, b: a | b, (F.coalesce(condition, false) for condition in conditions), false)
