"""Columns of stored values as pandas shows them to users."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from caraway.dtypes.decoding import decode
from caraway.dtypes.types import BoolType, DataType, DatetimeType, FloatType, IntType, StringType, base_type

# numpy's NaT, in every unit.
NOT_A_TIME = np.iinfo(np.int64).min


def to_series(values: Sequence[Any], dtype: DataType, name: str | None = None) -> "pd.Series[Any]":
    """Make a nullable column of stored values: `Int64`, `Float64`, `boolean`, `string`, datetimes in UTC, else objects.

    Args:
        values: In stored form (docs/records.md); None is null.
        dtype: Type of the column.
        name: Name of the Series.
    """
    match base_type(dtype):
        case IntType():
            return pd.Series(pd.array(values, dtype="Int64"), name=name)
        case FloatType():
            return pd.Series(pd.array(values, dtype="Float64"), name=name)
        case BoolType():
            return pd.Series(pd.array(values, dtype="boolean"), name=name)
        case StringType():
            return pd.Series(list(values), dtype="string", name=name)
        case DatetimeType():
            instants = np.array([NOT_A_TIME if value is None else value for value in values], dtype=np.int64)
            return pd.Series(
                pd.DatetimeIndex(instants.view("datetime64[us]")).as_unit("ns").tz_localize("UTC"), name=name
            )
        case _:
            read = decode(base_type(dtype))
            return pd.Series(objects([pd.NA if value is None else read(value) for value in values]), name=name)


def objects(values: Sequence[Any]) -> Any:  # noqa: ANN401 (numpy's own type says no more)
    """Make an array of objects, one by one: a list of lists would become rows and columns, a dict a series."""
    array = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        array[position] = value
    return array
