"""Evaluation of an expression with polars for rows of stored values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from caraway.dtypes.annotations import dtype_of
from caraway.expr import Expr
from caraway.expr.inference import infer
from caraway.expr.polars.compiler import compile_expr
from caraway.expr.polars.values import from_polars, polars_type, to_polars

ROW = "__caraway row"


def results(expr: Expr, schema: Mapping[str, Any], *rows: Sequence[Any], now: int | None = None) -> list[Any]:
    """Return the values for rows in the order of the schema, whose types are annotations."""
    types = {name: dtype_of(annotation) for name, annotation in schema.items()}
    columns = [to_polars(name, [row[place] for row in rows], types[name]) for place, name in enumerate(types)]
    # With a column of the frame beside it, polars repeats a constant for each row.
    frame = pl.DataFrame([pl.Series(ROW, range(len(rows)), dtype=pl.Int64), *columns])
    computed = frame.with_columns(compile_expr(expr.node, types, now=now).alias("result"))["result"]
    dtype = infer(expr.node, types)
    assert computed.dtype == polars_type(dtype)
    return from_polars(computed, dtype)


def constant(expr: Expr) -> Any:
    """Return the value of an expression without columns; it must be the same for two rows."""
    first, second = results(expr, {}, (), ())
    assert same(first, second)
    return first


def same(left: Any, right: Any) -> bool:
    """Return whether values are equal bit for bit; NaN equals NaN."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(item, right[key]) for key, item in left.items())
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right
