"""The `str` namespace of single values."""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from caraway.dtypes.types import STRING
from caraway.expr.functions.chrono_reading import reader
from caraway.expr.functions.json_path import parse_path
from caraway.expr.functions.json_text import extract
from caraway.expr.functions.json_values import parse_as
from caraway.expr.limits import check_characters
from caraway.expr.nodes import JsonExtract, ParseJson, Split, StringCall, StringFunction, Strptime
from caraway.expr.scalars.operators import strict, strict2
from caraway.expr.scalars.rare import of_polars
from caraway.expr.scalars.scope import Scalar, ScalarScope, compile_node


def lower(text: str) -> str:
    """Return a text in lower case; the Unicode tables are those of polars."""
    return text.lower() if text.isascii() else of_polars().lower(text)


def upper(text: str) -> str:
    """Return a text in upper case; the Unicode tables are those of polars."""
    return text.upper() if text.isascii() else of_polars().upper(text)


def _concat(first: str, second: str) -> str:
    check_characters(len(first) + len(second))
    return first + second


OF_ONE: Mapping[StringFunction, Callable[[str], Any]] = {
    StringFunction.LOWER: lower,
    StringFunction.UPPER: upper,
    StringFunction.LEN: len,
}
OF_TWO: Mapping[StringFunction, Callable[[str, str], Any]] = {
    StringFunction.CONTAINS: operator.contains,
    StringFunction.STARTSWITH: str.startswith,
    StringFunction.ENDSWITH: str.endswith,
    StringFunction.CONCAT: _concat,
}


@compile_node.register
def _(node: StringCall, scope: ScalarScope) -> Scalar:
    operands = [scope.operand(operand, STRING) for operand in (node.operand, *node.args)]
    if node.function in OF_ONE:
        return strict(OF_ONE[node.function], *operands)
    return strict2(OF_TWO[node.function], *operands)


@compile_node.register
def _(node: Split, scope: ScalarScope) -> Scalar:
    separator = node.separator
    return strict((lambda text: text.split(separator)) if separator else list, scope.operand(node.operand, STRING))


@compile_node.register
def _(node: Strptime, scope: ScalarScope) -> Scalar:
    return strict(reader(node.format, node.timezone), scope.operand(node.operand, STRING))


@compile_node.register
def _(node: ParseJson, scope: ScalarScope) -> Scalar:
    return strict(parse_as(node.dtype), scope.operand(node.operand, STRING))


@compile_node.register
def _(node: JsonExtract, scope: ScalarScope) -> Scalar:
    return strict(partial(extract, parse_path(node.path)), scope.operand(node.operand, STRING))
