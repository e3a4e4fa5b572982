"""Evaluation of an expression over a pandas frame, for users who try one out."""

import time
from collections.abc import Mapping
from typing import Any

import pandas as pd
import polars as pl

from caraway.dtypes.decoding import decode
from caraway.dtypes.frames import to_series
from caraway.dtypes.types import (
    BOOL,
    DATETIME,
    FLOAT,
    INT,
    BetweenType,
    DataType,
    OneOfType,
    RegexType,
    base_type,
    is_optional,
    strip_optional,
    type_name,
)
from caraway.dtypes.values import cast, is_null
from caraway.errors import DefinitionError, InvalidExprException, InvalidInputError
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import Node
from caraway.expr.polars_compiler import compile_as
from caraway.expr.polars_values import from_polars, to_polars
from caraway.expr.printer import print_node
from caraway.expr.promotion import promotes

ROW = "__caraway_row"
RESULT = "__caraway_result"
NUMPY_TYPES = {INT: "int64", FLOAT: "float64", BOOL: "bool"}


def evaluate(
    node: Node,
    frame: pd.DataFrame,
    schema: Mapping[str, DataType],
    wanted: DataType | None,
    *,
    parse: bool,
    now_column: str | None,
) -> "pd.Series[Any]":
    """Evaluate an expression for each row of a frame; see `Expr.eval`."""
    found = infer_nullable(node, schema)
    if wanted is None:
        if found is None:
            raise DefinitionError("the type of null alone is not known; give output_dtype")
        wanted = found
    elif not promotes(found, wanted):
        spelled = "null" if found is None else type_name(found)
        raise DefinitionError(f"{print_node(node)} is {spelled}, which can't be declared {type_name(wanted)}")
    if missing := [name for name in schema if name not in frame.columns]:
        raise InvalidExprException(
            f"the frame has no column {', '.join(missing)}; columns: {', '.join(map(str, frame))}"
        )
    columns = [_column(name, frame[name], dtype) for name, dtype in schema.items()]
    rows = pl.DataFrame([pl.Series(ROW, range(len(frame)), dtype=pl.Int64), *columns])
    now = pl.col(now_column) if now_column else time.time_ns() // 1_000
    # With a column of the frame beside it a constant is repeated for each row.
    computed = rows.with_columns(compile_as(node, wanted, schema, now=now).alias(RESULT))[RESULT]
    return _result(_checked(from_polars(computed, wanted), node, wanted), wanted, parse=parse)


def _column(name: str, values: "pd.Series[Any]", dtype: DataType) -> pl.Series:
    convert, stored = cast(dtype), []
    for row, value in enumerate(values):
        try:
            stored.append(convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"column {name}, row {row}: {error}") from None
    return to_polars(name, stored, dtype)


def _checked(values: list[Any], node: Node, dtype: DataType) -> list[Any]:
    if not is_optional(dtype) and None in values:
        raise InvalidInputError(f"{print_node(node)} is {type_name(dtype)}, but gives null in row {values.index(None)}")
    inner = strip_optional(dtype)
    if isinstance(inner, (BetweenType, OneOfType, RegexType)):
        check = cast(inner)
        for value in values:
            if value is not None:
                check(value)
    return values


def _result(values: list[Any], dtype: DataType, *, parse: bool) -> "pd.Series[Any]":
    base = base_type(dtype)
    if not parse or base == DATETIME:
        return to_series(values, dtype)
    read = decode(base)
    shown = [pd.NA if is_null(value) else read(value) for value in values]
    if base in NUMPY_TYPES and not any(value is pd.NA for value in shown):
        return pd.Series(shown, dtype=NUMPY_TYPES[base])
    series = pd.Series([None] * len(shown), dtype=object)
    for position, value in enumerate(shown):
        series.iloc[position] = value
    return series
