"""Columns of stored values in Arrow: the canonical form of a column in memory."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

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
from caraway.dtypes.values import DECIMAL_DIGITS

INSTANT = pa.timestamp("us", tz="UTC")

_SIMPLE: dict[type, pa.DataType] = {
    IntType: pa.int64(),
    FloatType: pa.float64(),
    BoolType: pa.bool_(),
    StringType: pa.string(),
    RegexType: pa.string(),
    BytesType: pa.binary(),
    DatetimeType: INSTANT,
    DateType: pa.date32(),
}


def arrow_type(dtype: DataType) -> pa.DataType:
    """Return the Arrow type of a column; restrictions and optionality make no difference."""
    match dtype:
        case OptionalType(of) | BetweenType(of) | OneOfType(of):
            return arrow_type(of)
        case DecimalType(scale):
            return pa.decimal128(DECIMAL_DIGITS, scale)
        case EmbeddingType(dim):
            return pa.list_(pa.float64(), dim)
        case ListType(of):
            return pa.list_(arrow_type(of))
        case MapType(of):
            return pa.map_(pa.string(), arrow_type(of))
        case StructType(_, fields):
            return pa.struct([(name, arrow_type(field)) for name, field in fields])
        case _:
            return _SIMPLE[type(dtype)]


def arrow_series(values: Sequence[Any], dtype: DataType) -> "pd.Series[Any]":
    """Return stored values as a pandas column on Arrow; None is null."""
    return pd.Series(pd.arrays.ArrowExtensionArray(arrow_array(values, dtype)))


def arrow_array(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return stored values as an Arrow column; None is null."""
    show = _shown(base_type(dtype))
    return pa.array([None if value is None else show(value) for value in values], type=arrow_type(dtype))


def _shown(dtype: DataType) -> Callable[[Any], Any]:
    """Compile the conversion from the stored form to Arrow's input: structs as dicts, maps as pairs."""
    match dtype:
        case OptionalType(of):
            return _shown(of)
        case ListType(of):
            item = _shown(of)
            return lambda value: [None if each is None else item(each) for each in value]
        case MapType(of):
            member = _shown(of)
            return lambda value: [(key, None if each is None else member(each)) for key, each in value.items()]
        case StructType(_, fields):
            names, members = [name for name, _ in fields], [_shown(field) for _, field in fields]
            return lambda value: {
                name: None if each is None else member(each)
                for name, member, each in zip(names, members, value, strict=True)
            }
        case _:
            return decode(dtype)
