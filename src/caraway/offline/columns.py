"""The columns of an offline query, which stay columns of polars from step to step as long as no step needs values."""

from collections.abc import Mapping

import polars as pl

from caraway.compute.query.batch import Batch
from caraway.compute.query.series import put_series, series_of
from caraway.dtypes.types import DataType
from caraway.expr.polars.values import from_polars, to_polars


class SeriesColumns(dict[str, list[object]]):
    """Columns by full name. One that is a series becomes a list of stored values when it is read as one."""

    def __init__(self, columns: Mapping[str, list[object]]) -> None:
        """Hold lists."""
        super().__init__(columns)
        self.series: dict[str, tuple[pl.Series, DataType]] = {}

    def __missing__(self, name: str) -> list[object]:
        series, dtype = self.series[name]
        values = self[name] = from_polars(series, dtype)
        return values

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.series


class SeriesBatch(Batch):
    """The rows of an offline query."""

    columns: SeriesColumns

    def has_null(self, name: str) -> bool:
        """Return whether a column has a null."""
        found = self.columns.series.get(name)
        return found is None or found[0].null_count() > 0


@series_of.register
def _(batch: SeriesBatch, name: str, dtype: DataType) -> pl.Series:
    found = batch.columns.series.get(name)
    if found is None:
        found = batch.columns.series[name] = to_polars(name, batch.columns[name], dtype), dtype
    return found[0]


@put_series.register
def _(batch: SeriesBatch, name: str, series: pl.Series, dtype: DataType) -> None:
    batch.columns.series[name] = series, dtype


def filled(series: pl.Series, default: object, dtype: DataType) -> pl.Series:
    """Return a column with a value, in stored form, in place of nulls."""
    if not series.null_count():
        return series
    constant = to_polars("", [default], dtype).new_from_index(0, len(series))
    return series.zip_with(series.is_not_null(), constant)


def replaced(series: pl.Series, kept: pl.Series, value: object, dtype: DataType) -> pl.Series:
    """Return a column with one value, in stored form, in all rows that aren't kept."""
    if kept.all():
        return series
    return series.zip_with(kept, to_polars("", [value], dtype).new_from_index(0, len(series)))
