"""Conversion of stored rows to frames on Arrow, and of frames to stored rows."""

from collections.abc import Mapping, Sequence

import pandas as pd

from caraway.compute.query.inputs import cast_input
from caraway.dtypes.frames import arrow_series
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


def arrow_frame(dataset: DatasetSpec, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Return a frame of stored rows, ordered by time stamp; rows of one time keep their order."""
    ordered = sorted(rows, key=lambda row: row[dataset.timestamp])  # type: ignore[arg-type, return-value]  # ints
    return pd.DataFrame(
        {field.name: arrow_series([row[field.name] for row in ordered], field.dtype) for field in dataset.fields}
    )


def dataset_rows(dataset: DatasetSpec, frame: object) -> list[dict[str, object]]:
    """Return a frame's rows as stored rows of a dataset, cast to its fields and checked.

    Raises:
        InvalidInputError: A column is missing, or a value doesn't fit.
    """
    where = f"dataset {dataset.name}"
    if not isinstance(frame, pd.DataFrame):
        raise InvalidInputError(f"{where}: rows come as a DataFrame, not {type(frame).__name__}")
    columns = []
    for field in dataset.fields:
        if field.name not in frame.columns:
            spelled = ", ".join(map(str, frame.columns))
            raise InvalidInputError(f"{where}: the frame has no column {field.name}; columns: {spelled}")
        convert, column = cast(field.dtype), []
        try:
            for value in frame[field.name].astype(object).tolist():
                column.append(convert(value))  # noqa: PERF401 (its length tells the row of an error)
        except InvalidInputError as error:
            raise InvalidInputError(f"{where}, column {field.name}, row {len(column)}: {error}") from None
        columns.append(column)
    names = [field.name for field in dataset.fields]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def key_rows(dataset: DatasetSpec, frame: pd.DataFrame) -> list[dict[str, object]]:
    """Return a frame with some keys of a dataset as stored rows.

    Raises:
        InvalidInputError: A value doesn't fit.
    """
    types = {field.name: field.dtype for field in dataset.fields}
    columns = {
        str(name): cast_input(str(name), types[str(name)], frame[name].astype(object).tolist())
        for name in frame.columns
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
