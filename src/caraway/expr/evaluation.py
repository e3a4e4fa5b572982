"""Evaluation of an expression over a pandas frame, by which users try an expression out (`Expr.eval`)."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import polars as pl
from polars.exceptions import PolarsError

from caraway.dtypes.containers import at
from caraway.dtypes.frames import arrow_series, objects, to_series
from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, DataType, base_type, type_name
from caraway.dtypes.values import Convert, cast, decode, is_null, verify
from caraway.errors import DefinitionError, InvalidExprException, InvalidInputError
from caraway.expr.inference import infer_nullable
from caraway.expr.nodes import Node
from caraway.expr.polars.compiler import compile_as, reason_of
from caraway.expr.polars.values import from_polars, to_polars
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
    dtype = _result_type(node, schema, wanted)
    if missing := [name for name in schema if name not in frame.columns]:
        raise InvalidExprException(
            f"the frame has no column {', '.join(missing)}; columns: {', '.join(map(str, frame)) or 'none'}"
        )
    if now_column is not None and (now_column not in schema or base_type(schema[now_column]) != DATETIME):
        known = ", ".join(schema) or "none"
        raise InvalidExprException(f"now_col_name={now_column!r} is no datetime column of the schema; columns: {known}")
    columns = [_column(name, frame[name], of) for name, of in schema.items()]
    rows = pl.DataFrame([pl.Series(ROW, range(len(frame)), dtype=pl.Int64), *columns])
    now = pl.col(now_column) if now_column else time.time_ns() // 1_000
    try:
        # `with_columns` repeats the value of a constant expression for each row of the frame. The column ROW keeps the
        # number of rows even if the schema has no columns.
        computed = rows.with_columns(compile_as(node, dtype, schema, now=now).alias(RESULT))[RESULT]
    except (InvalidInputError, PolarsError) as error:
        raise InvalidInputError(f"{print_node(node)}: {reason_of(error)}") from None
    return _shown(_checked(from_polars(computed, dtype), node, dtype), dtype, parse=parse)


def _result_type(node: Node, schema: Mapping[str, DataType], wanted: DataType | None) -> DataType:
    found = infer_nullable(node, schema)
    if wanted is None:
        if found is None:
            raise DefinitionError("the type of null alone is not known; give output_dtype")
        return found
    if not promotes(found, wanted):
        spelled = "null" if found is None else type_name(found)
        raise DefinitionError(f"{print_node(node)} is {spelled}, which can't be declared {type_name(wanted)}")
    return wanted


def _column(name: str, values: "pd.Series[Any]", dtype: DataType) -> pl.Series:
    return to_polars(name, _by_row(f"column {name}", cast(dtype), values), dtype)


def _checked(values: list[Any], node: Node, dtype: DataType) -> list[Any]:
    _by_row(print_node(node), verify(dtype), values)
    return values


def _by_row(where: str, convert: Convert, values: Iterable[Any]) -> list[Any]:
    """Return the converted values; an error begins with `where` and the number of the row."""
    return [at(f"{where}, row {row}", convert, value) for row, value in enumerate(values)]


def _shown(values: list[Any], dtype: DataType, *, parse: bool) -> "pd.Series[Any]":
    base = base_type(dtype)
    if base == DATETIME:
        return to_series(values, dtype)
    if not parse:
        return to_series(values, dtype) if base in (*NUMPY_TYPES, STRING) else arrow_series(values, base)
    read = decode(base)
    shown = [pd.NA if is_null(value) else read(value) for value in values]
    if base in NUMPY_TYPES and not any(value is pd.NA for value in shown):
        return pd.Series(shown, dtype=NUMPY_TYPES[base])
    return pd.Series(objects(shown))
