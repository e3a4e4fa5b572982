"""Conversion of frames to JSON and back."""

import base64
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from caraway.dtypes.annotations import STRUCT_ATTRIBUTE
from caraway.dtypes.frames import objects, to_array
from caraway.dtypes.instants import SAMPLED_VALUES, instant_us, iso_instant, lacks_zone, without_zone
from caraway.dtypes.types import DataType, base_type, is_optional, optional, type_name
from caraway.dtypes.values import INT_MIN, decode, from_json, is_null
from caraway.errors import InvalidInputError

# The largest integer that the library can write which makes the JSON of requests.
LARGEST = 2**64 - 1


def column_values(column: "pd.Series[Any]") -> list[Any]:
    """Return a column as a list that JSON can hold: instants as ISO text with microseconds, nulls as None."""
    kind = column.dtype.kind if isinstance(column.dtype, (np.dtype, pd.api.extensions.ExtensionDtype)) else "O"  # type: ignore[redundant-expr]  # users pass anything
    if isinstance(column.dtype, np.dtype):
        if kind in "iub":
            return column.tolist()
        if kind == "f" and not np.isinf(column.to_numpy()).any():
            # These values need no conversion: orjson writes NaN as null.
            return column.tolist()
    if _has_instants(column):
        utc = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz is not None else column
        micros = utc.to_numpy(dtype="datetime64[us]")
        texts = np.char.add(np.datetime_as_string(micros), "Z").tolist()
        return [None if missing else text for text, missing in zip(texts, np.isnat(micros), strict=True)]
    return [json_value(value) for value in column.tolist()]


def json_value(value: Any) -> Any:
    """Return a value in a form that JSON can represent, and that the server casts back to the same value."""
    match value:
        case str() | bool():
            return value
        case int():
            # The library that writes the JSON refuses larger integers, which a decimal may have.
            return value if INT_MIN <= value <= LARGEST else str(value)
        case list() | tuple() | np.ndarray():
            return [json_value(item) for item in value]
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
    if is_null(value):
        return None
    match value:
        case datetime() | np.datetime64():
            return iso_instant(instant_us(value))
        case date():
            return value.isoformat()
        case float() | np.floating():
            return float(value) if np.isfinite(value) else str(float(value))
        case Decimal():
            return str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case np.generic():
            return value.item()
    if hasattr(type(value), STRUCT_ATTRIBUTE):
        return {name: json_value(item) for name, item in vars(value).items()}
    raise InvalidInputError(f"a value of type {type(value).__name__} can't be sent: {value!r}")


def columns_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a frame as an object of columns."""
    return {str(name): column_values(frame[name]) for name in frame.columns}


def zone_remarks(frame: pd.DataFrame) -> list[str]:
    """Return the remarks on columns of datetimes without a zone, which `column_values` sends as UTC.

    Columns of texts get none, since a frame doesn't tell which of them are times. The server remarks on those.
    """
    return [without_zone(str(name)) for name in frame.columns if _lacks_zone(frame[name])]


def _has_instants(column: "pd.Series[Any]") -> bool:
    # Pandas also takes the dates of Arrow for instants, but they have no zone.
    return pd.api.types.is_datetime64_any_dtype(column.dtype) and column.dtype.type is not date


def _lacks_zone(column: "pd.Series[Any]") -> bool:
    if _has_instants(column):
        return column.dt.tz is None and bool(column.notna().any())
    if column.dtype != object:
        return False
    return any(not isinstance(value, str) and lacks_zone(value) for value in column.iloc[:SAMPLED_VALUES])


def instants(timestamps: "pd.Series[Any] | Sequence[Any]", rows: int) -> list[str]:
    """Return a time for each row as ISO text."""
    if len(timestamps) != rows:
        raise InvalidInputError(f"timestamps has {len(timestamps)} values for {rows} rows")
    if any(map(is_null, timestamps)):
        raise InvalidInputError("timestamps holds nulls; each row needs a time")
    return [iso_instant(instant_us(value)) for value in timestamps]


def typed_array(values: Sequence[Any], dtype: DataType, name: str) -> Any:
    """Return JSON values as a pandas array of a type."""
    stored = _stored(values, dtype, name)
    try:
        return to_array(stored, dtype)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from None


def typed_column(values: Sequence[Any], dtype: DataType, name: str) -> "pd.Series[Any]":
    """Return JSON values as a column of a type."""
    return pd.Series(typed_array(values, dtype, name), name=name, copy=False)


def typed_values(values: Sequence[Any], dtype: DataType, name: str) -> list[Any]:
    """Return JSON values as Python objects of a type; nulls are None."""
    read = decode(base_type(dtype))
    return [None if value is None else read(value) for value in _stored(values, dtype, name)]


def _stored(values: Sequence[Any], dtype: DataType, name: str) -> list[Any]:
    if not is_optional(dtype) and None in values:
        raise InvalidInputError(f"{name} is {type_name(dtype)}, but the answer holds a null")
    read = from_json(dtype)
    try:
        return [None if value is None else read(value) for value in values]
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from None


def untyped_array(values: Sequence[Any]) -> Any:
    """Return JSON values as an array without conversion; nulls become pd.NA."""
    if None in values:
        return objects([pd.NA if value is None else value for value in values])
    kinds = set(map(type, values))
    if kinds in ({float}, {bool}):
        return np.array(values)
    return objects(values) if kinds == {str} else pd.Series(objects(values)).infer_objects().to_numpy()


def untyped_column(values: Sequence[Any], name: str) -> "pd.Series[Any]":
    """Return JSON values as a column without conversion; nulls become pd.NA."""
    return pd.Series(untyped_array(values), name=name, copy=False)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame as a list of objects."""
    columns = columns_of(frame)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def row_frame(answer: Any, types: Mapping[str, DataType]) -> pd.DataFrame:
    """Return a server's answer, a list of rows or an object of columns, as a frame; typed columns may contain nulls."""
    columns: Mapping[str, list[Any]]
    if isinstance(answer, Mapping):
        columns = answer
    else:
        names = dict.fromkeys(name for row in answer for name in row)
        columns = {name: [row.get(name) for row in answer] for name in names}
    return pd.DataFrame(
        {
            name: typed_column(values, optional(types[name]), name) if name in types else untyped_column(values, name)
            for name, values in columns.items()
        }
    )
