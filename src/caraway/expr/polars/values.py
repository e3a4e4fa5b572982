"""Conversion of stored values to polars columns and back."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa

from caraway.dtypes import types as t
from caraway.dtypes.values import DECIMAL_DIGITS

INSTANT = pl.Datetime("us", "UTC")

Convert = Callable[[Any], Any]


@lru_cache(maxsize=4096)
def polars_type(dtype: t.DataType) -> pl.DataType:
    """Return the polars type of a column; restrictions and optionality make no difference."""
    return _column_type(dtype, INSTANT, pl.Date())


@lru_cache(maxsize=4096)
def _physical_type(dtype: t.DataType) -> pl.DataType:
    """Return the polars type with which a column is made first: instants and days as ints, so that any year fits."""
    return _column_type(dtype, pl.Int64(), pl.Int32())


# The polars types of stored values that contain no other values; `stored_type` returns one of these, or a list.
_PLAIN: Mapping[t.DataType, pl.DataType] = {
    t.INT: pl.Int64(),
    t.FLOAT: pl.Float64(),
    t.BOOL: pl.Boolean(),
    t.STRING: pl.String(),
    t.BYTES: pl.Binary(),
}


def _column_type(dtype: t.DataType, instant: pl.DataType, day: pl.DataType) -> pl.DataType:
    match t.base_type(dtype):
        case t.DatetimeType():
            return instant
        case t.DateType():
            return day
        case t.DecimalType(scale):
            return pl.Decimal(DECIMAL_DIGITS, scale)
        case t.MapType(of):
            return pl.List(pl.Struct({"key": pl.String(), "value": _column_type(of, instant, day)}))
        case t.StructType(_, fields):
            return pl.Struct({name: _column_type(inner, instant, day) for name, inner in fields})
    match t.stored_type(dtype):
        case t.ListType(of):
            return pl.List(_column_type(of, instant, day))
        case stored:
            return _PLAIN[stored]


def to_polars(name: str, values: Sequence[Any], dtype: t.DataType) -> pl.Series:
    """Return stored values as a column."""
    convert, physical, wanted = _shown(dtype), _physical_type(dtype), polars_type(dtype)
    given = values if convert is None else [None if value is None else convert(value) for value in values]
    series = pl.Series(name, given, dtype=physical)
    return series if physical == wanted else series.cast(wanted)


def from_arrow(column: pa.ChunkedArray | pa.Array, dtype: t.DataType) -> pl.Series:
    """Return an Arrow column, whose type `caraway.dtypes.values.arrow_type` gives, as a column of polars."""
    series = pl.Series(pl.from_arrow(column))
    return series.cast(polars_type(dtype))


def from_polars(series: pl.Series, dtype: t.DataType) -> list[Any]:
    """Return a column as stored values."""
    values, convert = series.to_physical().to_list(), _stored(dtype)
    return values if convert is None else [None if value is None else convert(value) for value in values]


@lru_cache(maxsize=4096)
def _shown(dtype: t.DataType) -> Convert | None:
    """Return the function from a stored value to polars's value; None if they are the same."""
    match t.base_type(dtype):
        case t.DecimalType():
            return Decimal
        case t.ListType(of):
            return _each(_shown(of))
        case t.MapType(of):
            inner = _nullable(_shown(of))
            return lambda value: [{"key": key, "value": inner(item)} for key, item in value.items()]
        case t.StructType(_, fields):
            converts = [(name, _nullable(_shown(of))) for name, of in fields]
            return lambda value: {name: show(item) for (name, show), item in zip(converts, value, strict=True)}
        case _:
            return None


@lru_cache(maxsize=4096)
def _stored(dtype: t.DataType) -> Convert | None:
    """Return the function from polars's physical value to a stored value; None if they are the same."""
    match t.base_type(dtype):
        case t.DecimalType(scale):
            return lambda value: _decimal_text(value, scale)
        case t.ListType(of):
            return _each(_stored(of))
        case t.MapType(of):
            inner = _nullable(_stored(of))
            return lambda value: {item["key"]: inner(item["value"]) for item in value}
        case t.StructType(_, fields):
            converts = [(name, _nullable(_stored(of))) for name, of in fields]
            return lambda value: [store(value[name]) for name, store in converts]
        case _:
            return None


def _decimal_text(unscaled: int, scale: int) -> str:
    # The text is made from the digits of the unscaled int, because decimal arithmetic could round them.
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _each(inner: Convert | None) -> Convert | None:
    return None if inner is None else lambda value: [None if item is None else inner(item) for item in value]


def _nullable(inner: Convert | None) -> Convert:
    return _same if inner is None else lambda value: None if value is None else inner(value)


def _same(value: Any) -> Any:
    return value
