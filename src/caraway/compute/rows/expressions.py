"""Expressions over the payload of a source, computed by polars."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from caraway.compute.rows.batches import Typed
from caraway.dtypes.types import DataType
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Node
from caraway.expr.polars.compiler import compile_as, reason_of
from caraway.expr.polars.values import from_polars, to_polars

ROW = "__caraway_row"
RESULT = "__caraway_result"

Columns = Mapping[str, Typed]


def run(node: Node, wanted: DataType, columns: Columns, positions: Sequence[int], now_us: int) -> list[Any] | None:
    """Return the value of an expression for each of these rows; None if the computation fails for one of them."""
    try:
        return _run(node, wanted, columns, positions, now_us)
    except (pl.exceptions.PolarsError, InvalidInputError):
        return None


def run_each(
    node: Node, wanted: DataType, columns: Columns, rows: int, now_us: int
) -> tuple[list[Any], Mapping[int, str]]:
    """Return the values for the rows whose computation succeeds, and the errors of the others."""
    values: list[Any] = []
    errors: dict[int, str] = {}
    for position in range(rows):
        try:
            values += _run(node, wanted, columns, [position], now_us)
        except (pl.exceptions.PolarsError, InvalidInputError) as error:
            errors[position] = reason_of(error)
    return values, errors


def _run(node: Node, wanted: DataType, columns: Columns, positions: Sequence[int], now_us: int) -> list[Any]:
    series = [to_polars(name, [typed.stored[p] for p in positions], typed.dtype) for name, typed in columns.items()]
    # The column of positions sets the frame's number of rows. Without it, an expression that reads no column, such as a
    # constant, would have one value instead of one for each row.
    rows = pl.DataFrame([pl.Series(ROW, list(positions), dtype=pl.Int64), *series])
    schema = {name: typed.dtype for name, typed in columns.items()}
    computed = rows.with_columns(compile_as(node, wanted, schema, now=now_us).alias(RESULT))[RESULT]
    return from_polars(computed, wanted)
