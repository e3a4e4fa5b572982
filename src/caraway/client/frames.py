"""Between pandas and the JSON of the server's API."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from caraway.dtypes.decoding import decode, from_json
from caraway.dtypes.instants import instant_us, iso_instant
from caraway.dtypes.types import (
    BoolType,
    DataType,
    DatetimeType,
    FloatType,
    IntType,
    StringType,
    base_type,
    is_optional,
    type_name,
)
from caraway.errors import InvalidInputError

# The pandas type of a column of results, by the base type of its values; all others are columns of objects.
PANDAS_TYPES: Mapping[type[Any], str] = {
    IntType: "Int64",
    FloatType: "Float64",
    BoolType: "boolean",
    StringType: "string",
    DatetimeType: "datetime64[ns, UTC]",
}


def to_columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Turn a frame into lists that JSON can hold, a list for each column; what is missing becomes null."""
    return {str(name): to_list(frame[name]) for name in frame.columns}


def to_list(series: pd.Series[Any]) -> list[Any]:
    """Turn a column into a list that JSON can hold; instants become ISO text with microseconds."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        return _instants(series.dt.tz_convert("UTC").dt.tz_localize(None))
    if pd.api.types.is_datetime64_dtype(series.dtype):
        return _instants(series)
    if pd.api.types.is_float_dtype(series.dtype) and isinstance(series.dtype, np.dtype):
        return [_float(value) for value in series.tolist()]
    return [_value(value) for value in series.tolist()]


def times(series: pd.Series[Any], count: int) -> list[str]:
    """Turn the times at which to read into ISO text.

    Raises:
        InvalidInputError: There are more or fewer than `count`, or one isn't an instant.
    """
    if len(series) != count:
        raise InvalidInputError(f"timestamps has {len(series)} entries for {count} rows; give one for each row")
    return [iso_instant(instant_us(value)) for value in series.tolist()]


def typed_series(values: Sequence[Any], dtype: DataType, name: str) -> pd.Series[Any]:
    """Turn JSON values of a known type into a column.

    Raises:
        InvalidInputError: A value is null and the type isn't optional.
    """
    read, make = from_json(dtype), decode(dtype)
    if not is_optional(dtype) and any(value is None for value in values):
        row = next(i for i, value in enumerate(values) if value is None)
        raise InvalidInputError(f"{name} is {type_name(dtype)}, but the server gave null for row {row}")
    base = base_type(dtype)
    stored = [None if value is None else read(value) for value in values]
    if isinstance(base, DatetimeType):
        instants = pd.array([pd.NaT if us is None else np.datetime64(us, "us") for us in stored], dtype="datetime64[ns]")
        return pd.Series(instants, name=name).dt.tz_localize("UTC")
    pandas_type = PANDAS_TYPES.get(type(base), "object")
    objects = [pd.NA if item is None else make(item) for item in stored]
    return pd.Series(objects, dtype=pandas_type, name=name)


def untyped_series(values: Sequence[Any], name: str) -> pd.Series[Any]:
    """Turn JSON values of an unknown type into a column, nulls into `pd.NA`."""
    if any(value is None for value in values):
        return pd.Series([pd.NA if value is None else value for value in values], dtype="object", name=name)
    return pd.Series(list(values), name=name, dtype="object" if not values else None)


def _instants(series: pd.Series[Any]) -> list[Any]:
    texts = np.datetime_as_string(series.to_numpy().astype("datetime64[us]"), unit="us").tolist()
    return [None if text == "NaT" else text for text in texts]


def _float(value: float) -> float | str | None:
    if value != value:  # noqa: PLR0124 (only NaN differs from itself)
        return None
    # JSON has no infinity; the server reads the word.
    return value if abs(value) != np.inf else ("Infinity" if value > 0 else "-Infinity")


def _value(value: Any) -> Any:  # noqa: ANN401, PLR0911 (a cell holds anything; one line a kind)
    match value:
        case None:
            return None
        case bool() | str() | int():
            return value
        case float():
            return _float(value)
        case datetime():
            return None if value is pd.NaT else iso_instant(instant_us(value))
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.decode()
        case np.ndarray():
            return [_value(item) for item in value.tolist()]
        case np.generic():
            return _value(value.item())
        case Mapping():
            return {str(key): _value(item) for key, item in value.items()}
        case list() | tuple():
            return [_value(item) for item in value]
        case _ if hasattr(value, "as_json"):
            return _value(value.as_json())
        case _ if value is pd.NA or value is pd.NaT:
            return None
        case _:
            raise InvalidInputError(f"can't send a {type(value).__name__} ({value!r}) to the server")
