"""Conversion of stored values (docs/records.md) to Python and to JSON, and from that JSON back."""

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pandas as pd

from caraway.dtypes.annotations import struct_class
from caraway.dtypes.instants import iso_instant, to_date, to_datetime
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
)
from caraway.dtypes.values import cast

Convert = Callable[[Any], Any]

# JSON has no infinities; Python's float() reads these words.
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


@lru_cache(maxsize=4096)
def decode(dtype: DataType) -> Convert:
    """Compile the conversion from the stored form to Python objects, as pandas users expect them.

    A null in a list or map is pd.NA. A null field of a struct is None, so that structs can be compared: `pd.NA == 1` is
    neither true nor false. Structs become instances of their class.
    """
    match dtype:
        case OptionalType(of):
            return _nullable(decode(of))
        case IntType() | FloatType() | BoolType() | StringType() | BytesType():
            return _same
        case BetweenType() | OneOfType() | RegexType():
            return _same
        case DatetimeType():
            return to_datetime
        case DateType():
            return to_date
        case DecimalType():
            return Decimal
        case EmbeddingType():
            return list
        case ListType(of):
            item = decode(of)
            return lambda value: [pd.NA if each is None else item(each) for each in value]
        case MapType(of):
            member = decode(of)
            return lambda value: {key: pd.NA if each is None else member(each) for key, each in value.items()}
        case StructType():
            return _struct_decoder(dtype)


@lru_cache(maxsize=4096)
def to_json(dtype: DataType) -> Convert:
    """Compile the conversion from the stored form to JSON values.

    Instants and days are ISO strings, decimals text, bytes base64, structs objects; infinities and NaN are words.
    """
    match dtype:
        case OptionalType(of):
            return _nullable(to_json(of))
        case FloatType():
            return _json_float
        case IntType() | BoolType() | StringType() | DecimalType() | OneOfType() | RegexType():
            return _same
        case BetweenType(of):
            return to_json(of)
        case BytesType():
            return lambda value: base64.b64encode(value).decode()
        case DatetimeType():
            return iso_instant
        case DateType():
            return lambda value: to_date(value).isoformat()
        case EmbeddingType():
            return _each(_json_float)
        case ListType(of):
            return _each(to_json(of))
        case MapType(of):
            return _each_value(to_json(of))
        case StructType(_, fields):
            writers = [(name, to_json(field)) for name, field in fields]
            return lambda value: {
                name: None if item is None else write(item) for (name, write), item in zip(writers, value, strict=True)
            }


@lru_cache(maxsize=4096)
def from_json(dtype: DataType) -> Convert:
    """Compile the conversion from `to_json` back to the stored form.

    The function raises `InvalidInputError` for a value that isn't of the type.
    """
    match dtype:
        case OptionalType(of):
            return _nullable(from_json(of))
        case BytesType():
            return base64.b64decode
        case FloatType():
            return lambda value: math.nan if value == "NaN" else cast(dtype)(value)
        case ListType(of):
            return _each(from_json(of))
        case MapType(of):
            read_value = from_json(of)
            return lambda value: {key: read_value(item) for key, item in sorted(_pairs(value))}
        case StructType(_, fields):
            readers = [(name, from_json(field)) for name, field in fields]
            return lambda value: [read(value.get(name)) for name, read in readers]
        case _:
            return cast(dtype)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else [(key, item) for key, item in value]


def _same(value: Any) -> Any:
    return value


def _nullable(inner: Convert) -> Convert:
    return inner if inner is _same else lambda value: None if value is None else inner(value)


def _each(inner: Convert) -> Convert:
    return lambda value: [None if item is None else inner(item) for item in value]


def _each_value(inner: Convert) -> Convert:
    return lambda value: {key: None if item is None else inner(item) for key, item in value.items()}


def _json_float(value: float) -> float | str:
    return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")


def _struct_decoder(dtype: StructType) -> Convert:
    readers = [(name, decode(field)) for name, field in dtype.fields]

    def to_struct(value: list[Any]) -> Any:
        fields = {name: None if item is None else read(item) for (name, read), item in zip(readers, value, strict=True)}
        cls = struct_class(dtype)
        return fields if cls is None else cls(**fields)

    return to_struct
