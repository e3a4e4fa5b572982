"""Columns of stored values in Arrow: the canonical form of a column in memory."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from caraway.dtypes.types import DataType, base_type
from caraway.dtypes.values import arrow_type, to_arrow


def arrow_series(values: Sequence[Any], dtype: DataType) -> "pd.Series[Any]":
    """Return stored values as a pandas column on Arrow; None is null."""
    return pd.Series(pd.arrays.ArrowExtensionArray(arrow_array(values, dtype)))


def arrow_array(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return stored values as an Arrow column; None is null."""
    show = to_arrow(base_type(dtype))
    return pa.array([None if value is None else show(value) for value in values], type=arrow_type(dtype))
