"""The kinds of columns: what a profile keeps of their values."""

from enum import StrEnum

import pyarrow as pa

from caraway.dtypes.types import (
    BoolType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
)


class Kind(StrEnum):
    """The kind of a column.

    Values of numbers have moments and quantiles, categories (texts and booleans) have the most frequent values, and
    times have the first and the last one. For all other values there are counts only.
    """

    NUMBER = "number"
    CATEGORY = "category"
    TIME = "time"
    OTHER = "other"


def kind_of(dtype: DataType) -> Kind:
    """Return how a column of a data type is profiled: as numbers, categories, times, or by its missing values only."""
    match base_type(dtype):
        case IntType() | FloatType() | DecimalType():
            return Kind.NUMBER
        case StringType() | BoolType():
            return Kind.CATEGORY
        case DatetimeType() | DateType():
            return Kind.TIME
        case _:
            return Kind.OTHER


def kind_in_arrow(dtype: pa.DataType) -> Kind:
    """Return the kind of a column of an Arrow type."""
    if pa.types.is_dictionary(dtype):
        return kind_in_arrow(dtype.value_type)
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return Kind.NUMBER
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
        return Kind.CATEGORY
    if pa.types.is_boolean(dtype):
        return Kind.CATEGORY
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        return Kind.TIME
    return Kind.OTHER
