"""Stored rows as frames on Arrow, and frames as stored rows."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    StructType,
    base_type,
)
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec
from caraway.query import cast_input

DECIMAL_DIGITS = 28


def arrow_frame(dataset: DatasetSpec, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Make a frame of stored rows, ordered by time stamp; rows of one time stay in their order."""
    ordered = sorted(rows, key=lambda row: row[dataset.timestamp])  # type: ignore[arg-type, return-value]  # ints
    return pd.DataFrame(
        {
            field.name: pd.Series(
                pa.array([_plain(row[field.name], field.dtype) for row in ordered], _arrow_type(field.dtype)),
                dtype=pd.ArrowDtype(_arrow_type(field.dtype)),
            )
            for field in dataset.fields
        }
    )


def _arrow_type(dtype: DataType) -> Any:  # noqa: ANN401 (pyarrow has no types of its own)
    match base_type(dtype):
        case IntType():
            return pa.int64()
        case FloatType():
            return pa.float64()
        case BoolType():
            return pa.bool_()
        case BytesType():
            return pa.binary()
        case DatetimeType():
            return pa.timestamp("ns", tz="UTC")
        case DateType():
            return pa.date32()
        case DecimalType(scale):
            return pa.decimal128(DECIMAL_DIGITS, scale)
        case EmbeddingType(dim):
            return pa.list_(pa.float64(), dim)
        case ListType(of):
            return pa.list_(_arrow_type(of))
        case MapType(of):
            return pa.map_(pa.string(), _arrow_type(of))
        case StructType(_, fields):
            return pa.struct([(name, _arrow_type(inner)) for name, inner in fields])
        case _:
            return pa.string()


def _plain(value: Any, dtype: DataType) -> Any:  # noqa: ANN401 (a stored value, and what pyarrow takes)
    if value is None:
        return None
    match base_type(dtype):
        case DatetimeType():
            return value * 1_000
        case DecimalType():
            return Decimal(value)
        case ListType(of):
            return [_plain(item, of) for item in value]
        case MapType(of):
            return [(key, _plain(item, of)) for key, item in value.items()]
        case StructType(_, fields):
            return {name: _plain(item, inner) for (name, inner), item in zip(fields, value, strict=True)}
        case _:
            return value


def dataset_rows(dataset: DatasetSpec, frame: object) -> list[dict[str, object]]:
    """Cast a frame to the fields of a dataset: a stored row for each row, restrictions checked.

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
    """Cast a frame with some keys of a dataset to stored rows.

    Raises:
        InvalidInputError: A value doesn't fit.
    """
    types = {field.name: field.dtype for field in dataset.fields}
    columns = {
        str(name): cast_input(str(name), types[str(name)], frame[name].astype(object).tolist())
        for name in frame.columns
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
