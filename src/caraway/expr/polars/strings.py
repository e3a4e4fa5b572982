"""The `str` namespace in polars."""

from functools import partial

import polars as pl

from caraway.dtypes.types import DATETIME, STRING, optional
from caraway.expr.functions.chrono_reading import reader
from caraway.expr.functions.json_path import parse_path
from caraway.expr.functions.json_text import extract
from caraway.expr.functions.json_values import parse_as
from caraway.expr.limits import MAX_CHARACTERS, check_characters
from caraway.expr.nodes import JsonExtract, ParseJson, Split, StringCall, StringFunction, Strptime
from caraway.expr.polars.scope import PolarsScope, compile_node
from caraway.expr.polars.series import by_row, of_columns


@compile_node.register
def _(node: StringCall, scope: PolarsScope) -> pl.Expr:
    text = scope.operand(node.operand, STRING)
    args = [scope.operand(arg, STRING) for arg in node.args]
    match node.function:
        case StringFunction.LOWER:
            return text.str.to_lowercase()
        case StringFunction.UPPER:
            return text.str.to_uppercase()
        case StringFunction.LEN:
            return text.str.len_chars().cast(pl.Int64)
        case StringFunction.CONTAINS:
            return text.str.contains(args[0], literal=True)
        case StringFunction.STARTSWITH:
            return text.str.starts_with(args[0])
        case StringFunction.ENDSWITH:
            return text.str.ends_with(args[0])
        case StringFunction.CONCAT:
            return of_columns(_concat, [text, args[0]], optional(STRING))


@compile_node.register
def _(node: Split, scope: PolarsScope) -> pl.Expr:
    return scope.operand(node.operand, STRING).str.split(node.separator)


@compile_node.register
def _(node: Strptime, scope: PolarsScope) -> pl.Expr:
    text = scope.operand(node.operand, STRING)
    return by_row(reader(node.format, node.timezone), [text], [STRING], DATETIME)


@compile_node.register
def _(node: ParseJson, scope: PolarsScope) -> pl.Expr:
    return by_row(parse_as(node.dtype), [scope.operand(node.operand, STRING)], [STRING], node.dtype)


@compile_node.register
def _(node: JsonExtract, scope: PolarsScope) -> pl.Expr:
    text = scope.operand(node.operand, STRING)
    return by_row(partial(extract, parse_path(node.path)), [text], [STRING], optional(STRING))


def _concat(columns: list[pl.Series]) -> pl.Series:
    first, second = columns
    # polars knows the number of a text's bytes without reading the text, and a text has at least as many bytes as
    # characters. So characters, which are slow to count, are counted only if there are too many bytes.
    if ((first.str.len_bytes() + second.str.len_bytes()) > MAX_CHARACTERS).any():
        for characters in first.str.len_chars() + second.str.len_chars():
            check_characters(characters or 0)
    return first + second


def lower_text(text: str) -> str:
    """Make one text lower case."""
    return str(pl.Series([text]).str.to_lowercase()[0])


def upper_text(text: str) -> str:
    """Make one text upper case."""
    return str(pl.Series([text]).str.to_uppercase()[0])
