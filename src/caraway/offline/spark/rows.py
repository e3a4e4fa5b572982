"""Rows of a query between two stages, as columns: those of features, and of each row its number, time and error."""

import re
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from caraway.compute.query.batch import Batch
from caraway.compute.query.series import put_series, series_of
from caraway.dtypes.types import DataType
from caraway.errors import ExtractorError, InvalidInputError
from caraway.expr.polars.values import polars_type
from caraway.offline.columns import SeriesBatch, SeriesColumns

# The columns beside those of features. Names of features contain no space, so no feature has one of these names.
NUMBER, TIME, ERROR = "row number", "row time", "row error"
_ROW = re.compile(r"\brow 0\b")

Types = Mapping[str, DataType]


def empty(types: Types) -> pl.DataFrame:
    """Return no rows, with all columns."""
    schema: dict[str, pl.DataType] = {NUMBER: pl.Int64(), TIME: pl.Int64(), ERROR: pl.String()}
    return pl.DataFrame(schema=schema | {name: polars_type(dtype) for name, dtype in types.items()})


def batch_of(frame: pl.DataFrame, types: Types) -> SeriesBatch:
    """Return rows as a batch of the query engine."""
    batch = SeriesBatch(SeriesColumns({}), frame.height, frame[TIME].to_list(), past=True)
    for name in frame.columns:
        if name in types:
            put_series(batch, name, frame[name], types[name])
    return batch


def frame_of(batch: Batch, names: Sequence[str], types: Types) -> list[pl.Series]:
    """Return columns of a batch."""
    return [series_of(batch, name, types[name]).alias(name).cast(polars_type(types[name])) for name in names]


def advanced(
    frame: pl.DataFrame, run: Callable[[SeriesBatch], None], names: Sequence[str], types: Types
) -> pl.DataFrame:
    """Return rows with the columns `names` after some steps; a row that fails has an error, and nulls from then on.

    Args:
        frame: The rows. Those that have an error already are left as they are.
        run: Takes the steps, and raises `InvalidInputError` or `ExtractorError` if a row fails.
        names: The columns that are needed afterwards.
        types: The types of all columns.
    """
    failed = frame[ERROR].is_not_null()
    pieces = [empty({name: types[name] for name in names}), _lost(frame.filter(failed), names, types)]
    left = [frame.filter(~failed)]
    while left:
        some = left.pop()
        if not some.height:
            continue
        batch = batch_of(some, types)
        try:
            run(batch)
        except (InvalidInputError, ExtractorError) as error:
            if some.height == 1:
                # The row was computed alone, so the error calls it "row 0". Only the first "row 0" is replaced by the
                # row's real number, since a later one may be part of a value that the error quotes.
                told = _ROW.sub(f"row {some[NUMBER][0]}", str(error), count=1)
                pieces.append(_lost(some.with_columns(pl.lit(told, pl.String).alias(ERROR)), names, types))
            else:
                middle = some.height // 2
                left += [some[middle:], some[:middle]]
            continue
        pieces.append(pl.DataFrame([some[NUMBER], some[TIME], some[ERROR], *frame_of(batch, names, types)]))
    return pl.concat(pieces)


def _lost(rows: pl.DataFrame, names: Sequence[str], types: Types) -> pl.DataFrame:
    """Return rows that failed: their numbers, times and errors, and nulls."""
    nothing = empty({name: types[name] for name in names})
    return rows.select(NUMBER, TIME, ERROR).with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in nothing.schema.items() if name in names
    )
