"""Queries of the mock: from a frame of inputs to a frame of features."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import pandas as pd

from caraway.client.arguments import Named
from caraway.compute.query.batch import Batch, Columns
from caraway.compute.query.datasets import DatasetLookups
from caraway.compute.query.executor import CompiledPlan, QueryEngine
from caraway.compute.query.inputs import cast_input
from caraway.dtypes.instants import instant_us
from caraway.dtypes.series import input_series, result_series
from caraway.dtypes.types import DataType
from caraway.dtypes.values import LENIENT
from caraway.errors import InvalidInputError

LOG = logging.getLogger(__name__)


def row_times(timestamps: object, rows: int) -> list[int]:
    """Return a time for each row in microseconds; times may be datetimes, ISO texts or epoch numbers.

    Raises:
        InvalidInputError: The number of times isn't that of the rows, or a value isn't a time.
    """
    values = timestamps.astype(object).tolist() if isinstance(timestamps, pd.Series) else timestamps
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise InvalidInputError(f"timestamps is a {type(timestamps).__name__}; give a Series with a time for each row")
    if len(values) != rows:
        raise InvalidInputError(f"timestamps has {len(values)} values for {rows} rows")
    times = []
    for row, value in enumerate(values):
        try:
            times.append(instant_us(value))
        except (InvalidInputError, ValueError) as error:
            raise InvalidInputError(f"timestamps, row {row}: {error}") from None
    return times


def compute(
    queries: QueryEngine, given: Named, wanted: Sequence[str], frame: pd.DataFrame, at: list[int] | None
) -> pd.DataFrame:
    """Return a frame of computed features.

    Args:
        queries: The branch's queries.
        given: Full names of the inputs, with the types of those that were given as objects.
        wanted: Full names of features, or names of featuresets.
        frame: A column for each input.
        at: The time of each row; None: now.

    Raises:
        UnknownFeatureError: A feature doesn't exist.
        InvalidInputError: An input can't be cast, or a feature can't be computed.
        ExtractorError: An extractor failed.
    """
    compiled = queries.plan(list(given), wanted, foreign_inputs=True)
    columns = _columns(compiled, given, frame)
    batch = Batch(columns, len(frame), time.time_ns() // 1000 if at is None else at, at is not None)
    compiled.compute(batch)
    return pd.DataFrame(
        {
            output.name: _given_column(output.name, given[output.name], frame)
            if output.name in given
            else _computed_column(output.name, output.dtype, batch)
            for output in compiled.plan.outputs
        },
        index=pd.RangeIndex(len(frame)),
    )


def _columns(compiled: CompiledPlan, given: Named, frame: pd.DataFrame) -> Columns:
    """Return the inputs, cast: an input given as an object at once, one given by name when a step reads it."""
    columns: dict[str, list[object]] = {}
    unfit: dict[str, InvalidInputError] = {}
    for column in compiled.plan.inputs:
        name, declared = column.name, given[column.name]
        raw = frame[name].astype(object).tolist()
        try:
            stored = cast_input(name, declared if declared is not None else column.dtype, raw, LENIENT)
        except InvalidInputError as error:
            if declared is not None:
                raise
            unfit[name] = error
        else:
            # An input that isn't a feature of the graph has no type here; the step that reads the input casts it.
            columns[name] = stored if column.dtype is not None else raw
    return Columns(columns, unfit)


def _given_column(name: str, declared: DataType | None, frame: pd.DataFrame) -> "pd.Series[Any]":
    if declared is None:
        return frame[name].reset_index(drop=True)
    return input_series(cast_input(name, declared, frame[name].astype(object).tolist(), LENIENT), declared, name)


def _computed_column(name: str, dtype: DataType | None, batch: Batch) -> "pd.Series[Any]":
    returned = batch.returned.get(name)
    if returned is not None:
        return returned.rename(name)
    if dtype is None:
        return pd.Series(batch.columns[name])
    return result_series(batch.columns[name], dtype, name)


def look_up(
    lookups: DatasetLookups, dataset: str, keys: pd.DataFrame, fields: Sequence[str], at: list[int] | None
) -> "tuple[pd.DataFrame | pd.Series[Any], pd.Series[bool]]":
    """Return rows of a dataset as a client returns them: a Series if one field is wanted."""
    times = pd.to_datetime([time.time_ns() // 1000] * len(keys) if at is None else at, unit="us", utc=True)
    frame, found = lookups(dataset, pd.Series(times), keys.reset_index(drop=True), fields)
    return (frame[fields[0]] if len(fields) == 1 else frame), found
