"""Columns of stored values in polars and back."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from caraway.dtypes.decoding import decode
from caraway.dtypes.types import (
    BetweenType,
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
    OneOfType,
    OptionalType,
    RegexType,
    StringType,
    StructType,
    base_type,
)
from caraway.dtypes.values import DECIMAL_DIGITS, cast

INSTANT = pl.Datetime("us", "UTC")


def polars_type(dtype: DataType) -> pl.DataType:
    """Return the polars type of a column; restrictions and optionality make no difference."""
    match dtype:
        case OptionalType(of) | BetweenType(of) | OneOfType(of):
            return polars_type(of)
        case IntType():
            return pl.Int64()
        case FloatType():
            return pl.Float64()
        case BoolType():
            return pl.Boolean()
        case StringType() | RegexType():
            return pl.String()
        case BytesType():
            return pl.Binary()
        case DatetimeType():
            return INSTANT
        case DateType():
            return pl.Date()
        case DecimalType(scale):
            return pl.Decimal(DECIMAL_DIGITS, scale)
        case EmbeddingType():
            return pl.List(pl.Float64)
        case ListType(of):
            return pl.List(polars_type(of))
        case MapType(of):
            return pl.List(pl.Struct({"key": pl.String(), "value": polars_type(of)}))
        case StructType(_, fields):
            return pl.Struct({name: polars_type(inner) for name, inner in fields})


def to_polars(name: str, values: Sequence[Any], dtype: DataType) -> pl.Series:
    """Make a column of stored values."""
    match base_type(dtype):
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return pl.Series(name, values, dtype=polars_type(dtype))
        case DatetimeType():
            return pl.Series(name, values, dtype=pl.Int64).cast(INSTANT)
        case DateType():
            return pl.Series(name, values, dtype=pl.Int32).cast(pl.Date)
        case base:
            shown = [None if value is None else _shown(value, base) for value in values]
            return pl.Series(name, shown, dtype=polars_type(dtype))


def from_polars(series: pl.Series, dtype: DataType) -> list[Any]:
    """Return a column as stored values."""
    match base_type(dtype):
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return series.to_list()
        case DatetimeType() | DateType():
            return series.to_physical().to_list()
        case base:
            stored = cast(base)
            return [None if value is None else stored(_plain(value, base)) for value in series.to_list()]


def _shown(value: Any, dtype: DataType) -> Any:  # noqa: ANN401
    """Turn a stored value into the Python value that polars takes."""
    match dtype:
        case OptionalType(of):
            return None if value is None else _shown(value, of)
        case ListType(of):
            return [_shown(item, of) for item in value]
        case MapType(of):
            return [{"key": key, "value": _shown(item, of)} for key, item in value.items()]
        case StructType(_, fields):
            return {name: _shown(item, of) for (name, of), item in zip(fields, value, strict=True)}
        case _:
            return decode(dtype)(value)


def _plain(value: Any, dtype: DataType) -> Any:  # noqa: ANN401
    """Turn what polars gives into what casts to the stored form: maps are lists of pairs in polars."""
    match dtype:
        case OptionalType(of):
            return None if value is None else _plain(value, of)
        case ListType(of):
            return [_plain(item, of) for item in value]
        case MapType(of):
            return {item["key"]: _plain(item["value"], of) for item in value}
        case StructType(_, fields):
            return {name: _plain(value[name], of) for name, of in fields}
        case _:
            return value
