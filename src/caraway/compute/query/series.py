"""The columns of a batch as columns of polars."""

from functools import singledispatch

import polars as pl

from caraway.compute.query.batch import Batch
from caraway.dtypes.types import DataType
from caraway.expr.polars.values import from_polars, to_polars


@singledispatch
def series_of(batch: Batch, name: str, dtype: DataType) -> pl.Series:
    """Return a column of a type as a column of polars."""
    return to_polars(name, batch.columns[name], dtype)


@singledispatch
def put_series(batch: Batch, name: str, series: pl.Series, dtype: DataType) -> None:
    """Add a column that is given as a column of polars."""
    batch.columns[name] = from_polars(series, dtype)
