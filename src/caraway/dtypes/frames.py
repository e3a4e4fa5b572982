"""Conversion of columns of stored values to pandas, as users see them, and to Arrow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.arrays import BooleanArray, FloatingArray, IntegerArray

from caraway.dtypes.instants import iso_instant
from caraway.dtypes.types import BoolType, DataType, DatetimeType, FloatType, IntType, StringType, base_type
from caraway.dtypes.values import arrow_type, decode, to_arrow
from caraway.errors import InvalidInputError

# The integer by which numpy stores NaT, in every unit.
NOT_A_TIME = np.iinfo(np.int64).min
# The greatest instant in microseconds that fits the 64-bit nanoseconds of pandas. Numpy converts a greater one to a
# wrong instant, without an error.
_MAX_US = np.iinfo(np.int64).max // 1_000


def to_series(values: Sequence[Any], dtype: DataType, name: str | None = None) -> "pd.Series[Any]":
    """Return stored values as a nullable column: `Int64`, `Float64`, `boolean`, `string`, UTC datetimes or objects."""
    return pd.Series(to_array(values, dtype), name=name, copy=False)


def to_array(values: Sequence[Any], dtype: DataType) -> Any:
    """Return the array of `to_series`, which takes a tenth of the time if there are few values."""
    match base_type(dtype):
        case IntType():
            return _numbers(values, int, IntegerArray, "Int64")
        case FloatType():
            return _numbers(values, float, FloatingArray, "Float64")
        case BoolType():
            return _numbers(values, bool, BooleanArray, "boolean")
        case StringType():
            return pd.array(list(values), dtype="string")
        case DatetimeType():
            return to_timestamps(values).array
        case _:
            read = decode(base_type(dtype))
            return objects([pd.NA if value is None else read(value) for value in values])


def _numbers(values: Sequence[Any], kind: type, array: Any, nullable: str) -> Any:
    """Return a nullable array; NaN is a null."""
    if not {kind, type(None)}.issuperset(map(type, values)):
        # The array's own constructor converts values of other types, or refuses them.
        return pd.array(values, dtype=nullable)  # type: ignore[call-overload]
    filled = [0 if value is None else value for value in values] if None in values else values
    data: Any = np.array(filled, dtype=kind)
    mask = np.array([value is None or value != value for value in values], dtype=np.bool_)  # noqa: PLR0124 (NaN only)
    return array(data, mask)


def to_timestamps(instants: Sequence[int | None]) -> pd.DatetimeIndex:
    """Return instants in microseconds as timestamps in UTC; None is NaT.

    Raises `InvalidInputError` if pandas has no timestamp for one of them.
    """
    us = np.array([NOT_A_TIME if instant is None else instant for instant in instants], dtype=np.int64)
    beyond = (np.abs(us) > _MAX_US) & (us != NOT_A_TIME)
    if beyond.any():
        raise InvalidInputError(
            f"{_spelled(int(us[beyond][0]))} is beyond the timestamps of pandas, which go from 1677-09-22 to 2262-04-11"
        )
    return pd.DatetimeIndex(us.view("datetime64[us]").astype("datetime64[ns]"), tz="UTC")


def _spelled(us: int) -> str:
    try:
        return iso_instant(us)
    except OverflowError:
        return f"the instant {us} us after 1970"


def objects(values: Sequence[Any]) -> Any:
    """Return an array of objects. `np.array` isn't used, because it makes a matrix of a list of equally long lists."""
    return np.fromiter(values, dtype=object, count=len(values))


def arrow_series(values: Sequence[Any], dtype: DataType) -> "pd.Series[Any]":
    """Return stored values as a pandas column on Arrow; None is null."""
    return pd.Series(pd.arrays.ArrowExtensionArray(arrow_array(values, dtype)))


def arrow_array(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return stored values as an Arrow column; None is null."""
    show = to_arrow(base_type(dtype))
    return pa.array([None if value is None else show(value) for value in values], type=arrow_type(dtype))
