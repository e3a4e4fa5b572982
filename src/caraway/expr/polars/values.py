"""Conversion of stored values to polars columns and back."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl

from caraway.dtypes.types import (
    BOOL,
    BYTES,
    FLOAT,
    INT,
    STRING,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    ListType,
    MapType,
    StructType,
    base_type,
    stored_type,
)
from caraway.dtypes.values import DECIMAL_DIGITS

INSTANT = pl.Datetime("us", "UTC")

Convert = Callable[[Any], Any]


@lru_cache(maxsize=4096)
def polars_type(dtype: DataType) -> pl.DataType:
    """Return the polars type of a column; restrictions and optionality make no difference."""
    return _column_type(dtype, INSTANT, pl.Date())


@lru_cache(maxsize=4096)
def _physical_type(dtype: DataType) -> pl.DataType:
    """Return the type with which a column is created: instants and days are ints, so that any year fits."""
    return _column_type(dtype, pl.Int64(), pl.Int32())


# The types of columns with stored values that contain no others; values of other types are stored as one of these.
_PLAIN: Mapping[DataType, pl.DataType] = {
    INT: pl.Int64(),
    FLOAT: pl.Float64(),
    BOOL: pl.Boolean(),
    STRING: pl.String(),
    BYTES: pl.Binary(),
}


def _column_type(dtype: DataType, instant: pl.DataType, day: pl.DataType) -> pl.DataType:
    match base_type(dtype):
        case DatetimeType():
            return instant
        case DateType():
            return day
        case DecimalType(scale):
            return pl.Decimal(DECIMAL_DIGITS, scale)
        case MapType(of):
            return pl.List(pl.Struct({"key": pl.String(), "value": _column_type(of, instant, day)}))
        case StructType(_, fields):
            return pl.Struct({name: _column_type(inner, instant, day) for name, inner in fields})
    match stored_type(dtype):
        case ListType(of):
            return pl.List(_column_type(of, instant, day))
        case stored:
            return _PLAIN[stored]


def to_polars(name: str, values: Sequence[Any], dtype: DataType) -> pl.Series:
    """Return stored values as a column."""
    convert, physical, wanted = _shown(dtype), _physical_type(dtype), polars_type(dtype)
    given = values if convert is None else [None if value is None else convert(value) for value in values]
    series = pl.Series(name, given, dtype=physical)
    return series if physical == wanted else series.cast(wanted)


def from_polars(series: pl.Series, dtype: DataType) -> list[Any]:
    """Return a column as stored values."""
    values, convert = series.to_physical().to_list(), _stored(dtype)
    return values if convert is None else [None if value is None else convert(value) for value in values]


@lru_cache(maxsize=4096)
def _shown(dtype: DataType) -> Convert | None:
    """Return the function from a stored value to polars's value; None if they are the same."""
    match base_type(dtype):
        case DecimalType():
            return Decimal
        case ListType(of):
            return _each(_shown(of))
        case MapType(of):
            inner = _nullable(_shown(of))
            return lambda value: [{"key": key, "value": inner(item)} for key, item in value.items()]
        case StructType(_, fields):
            converts = [(name, _nullable(_shown(of))) for name, of in fields]
            return lambda value: {name: show(item) for (name, show), item in zip(converts, value, strict=True)}
        case _:
            return None


@lru_cache(maxsize=4096)
def _stored(dtype: DataType) -> Convert | None:
    """Return the function from polars's physical value to a stored value; None if they are the same."""
    match base_type(dtype):
        case DecimalType(scale):
            return lambda value: _decimal_text(value, scale)
        case ListType(of):
            return _each(_stored(of))
        case MapType(of):
            inner = _nullable(_stored(of))
            return lambda value: {item["key"]: inner(item["value"]) for item in value}
        case StructType(_, fields):
            converts = [(name, _nullable(_stored(of))) for name, of in fields]
            return lambda value: [store(value[name]) for name, store in converts]
        case _:
            return None


def _decimal_text(unscaled: int, scale: int) -> str:
    # The digits are those of the smallest unit, so that no arithmetic can round.
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _each(inner: Convert | None) -> Convert | None:
    return None if inner is None else lambda value: [None if item is None else inner(item) for item in value]


def _nullable(inner: Convert | None) -> Convert:
    return _same if inner is None else lambda value: None if value is None else inner(value)


def _same(value: Any) -> Any:
    return value
