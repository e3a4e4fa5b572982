"""Conversion of stored columns to the pandas series that users' functions get, and of their results back.

The dtypes of the series are part of the public API: nullable ones for numbers, truth values, text and instants, Arrow's
for days and decimals, objects for all other types.
"""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.arrays import BooleanArray, FloatingArray, IntegerArray

from caraway.dtypes import frames
from caraway.dtypes import types as t
from caraway.dtypes.instants import to_date
from caraway.dtypes.values import CONVERSIONS, DECIMAL_DIGITS, Convert, cast, conforms, decode, is_null, mismatch, same
from caraway.errors import InvalidInputError

# `_checked` caches the compiled conversions of at most this many data types; a deployment has some hundreds of types.
MAX_KEPT = 1_000


def to_series(
    values: Sequence[object], dtype: t.DataType | None, *, name: str, index: pd.Index, seal: Convert = MappingProxyType
) -> "pd.Series[Any]":
    """Return the series that users' functions get.

    Args:
        values: The column in stored form.
        dtype: Type of the column; None leaves the values as they are.
        name: Name of the series.
        index: Index of the series.
        seal: The class of maps and structs in the series: `MappingProxyType`, which can't be changed, or `dict`.
    """
    return pd.Series(_array(values, dtype, seal), index=index, name=name, copy=False)


def result_series(values: Sequence[object], dtype: t.DataType, name: str) -> "pd.Series[Any]":
    """Return a column of a query's answer: nullable dtypes, decimals on Arrow, structs as instances of their class."""
    if isinstance(t.base_type(dtype), t.DecimalType):
        return to_series(values, dtype, name=name, index=pd.RangeIndex(len(values)))
    return frames.to_series(values, dtype, name)


def input_series(values: Sequence[object], dtype: t.DataType, name: str) -> "pd.Series[Any]":
    """Return a query's input as a column of its answer; unlike those of results, its structs are plain dicts."""
    if isinstance(t.base_type(dtype), t.StructType):
        return pd.Series(_objects(values, _user_value(t.base_type(dtype), dict)), name=name)
    return result_series(values, dtype, name)


def _array(values: Sequence[Any], dtype: t.DataType | None, seal: Convert) -> Any:
    base = None if dtype is None else t.base_type(dtype)
    match base:
        case t.IntType():
            return IntegerArray(*_masked(values, np.int64, 0))
        case t.FloatType():
            return FloatingArray(*_masked(values, np.float64, 0.0))
        case t.BoolType():
            return BooleanArray(*_masked(values, np.bool_, 0))
        case t.StringType():
            return pd.array(list(values), dtype="string")
        case t.DatetimeType():
            return frames.to_timestamps(values).array
        case t.DateType():
            days = [None if value is None else to_date(value) for value in values]
            return pd.Series(days, dtype=pd.ArrowDtype(pa.date32())).array
        case t.DecimalType(scale):
            numbers = [None if value is None else Decimal(value) for value in values]
            return pd.Series(numbers, dtype=pd.ArrowDtype(pa.decimal128(DECIMAL_DIGITS, scale))).array
        case None:
            return _objects(values, same)
        case _:
            return _objects(values, _user_value(base, seal))


def _masked(values: Sequence[object], kind: type[np.generic], fill: object) -> tuple[Any, Any]:
    if None not in values:
        return np.array(values, dtype=kind), np.zeros(len(values), dtype=np.bool_)
    mask = np.array([value is None for value in values], dtype=np.bool_)
    return np.array([fill if value is None else value for value in values], dtype=kind), mask


def _objects(values: Sequence[object], wrap: Convert) -> Any:
    return frames.objects([pd.NA if value is None else wrap(value) for value in values])


def _user_value(dtype: t.DataType, seal: Convert = MappingProxyType) -> Convert:
    """Compile the conversion of a list, map or struct for users' functions.

    Maps and structs are made by `seal`. Nulls inside are as in `decode`: pd.NA in lists and maps, None in structs.
    """
    match t.strip_optional(dtype):
        case t.ListType(of):
            item = _user_value(of, seal)
            return lambda value: [pd.NA if v is None else item(v) for v in value]
        case t.MapType(of):
            member = _user_value(of, seal)
            return lambda value: seal({k: pd.NA if v is None else member(v) for k, v in value.items()})
        case t.StructType(_, fields):
            names, members = [name for name, _ in fields], [_user_value(of, seal) for _, of in fields]
            return lambda value: seal(
                {n: None if v is None else m(v) for n, m, v in zip(names, members, value, strict=True)}
            )
        case inner:
            return decode(inner)


def from_series(series: "pd.Series[Any]", dtype: t.DataType) -> list[object]:
    """Return a column that a user's function computed in stored form.

    Raises:
        InvalidInputError: The declared type doesn't allow the column's dtype, a null in it, or one of its values.
    """
    if not series.empty and not CONVERSIONS[type(t.base_type(dtype))].taken_from(str(series.dtype)):
        raise InvalidInputError(
            f"is declared {t.type_name(dtype)}, but the column is {series.dtype}{_hint(dtype, series.dtype)}"
        )
    # For these dtypes `tolist()` alone has the same result as `astype(object).tolist()`, and takes less time.
    plain = isinstance(series.dtype, (pd.Int64Dtype, pd.Float64Dtype, pd.BooleanDtype))
    plain = plain or (isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufb")
    found = series.tolist() if plain else series.astype(object).tolist()
    values = [None if is_null(value) else value for value in found]
    # `None in values` would compare a value that is a numpy array element by element, and numpy raises an error if such
    # a result is treated as true or false.
    null = next((row for row, value in enumerate(values) if value is None), None)
    if null is not None and not t.is_optional(dtype):
        raise InvalidInputError(f"is declared {t.type_name(dtype)}, but row {null} is null")
    convert = _checked(dtype)
    stored: list[object] = []
    for row, value in enumerate(values):
        try:
            stored.append(None if value is None else convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"row {row}: {error}") from None
    return stored


@lru_cache(maxsize=MAX_KEPT)
def _checked(declared: t.DataType) -> Convert:
    """Compile the conversion to stored form of a value that isn't null, in a column that a user's function computed.

    If the column's dtype is `object`, a value must be of the type as it stands: in a list of floats, 1 is refused.
    Text is the exception: any value in its column that isn't bytes, a list or another collection is converted to text.
    """
    dtype = t.strip_optional(declared)
    convert = cast(dtype)
    match dtype:
        case t.StringType():
            return _as_text
        case t.MapType():
            return _strict(dtype, lambda value: convert(dict(value)), dict)
        case _:
            return _strict(dtype, convert, same) if CONVERSIONS[type(dtype)].strict else convert


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Collection):
        # The text would be the Python form, such as b'a' or [1], which nobody wants to store.
        raise mismatch("str", value)
    return str(value)


def _strict(dtype: t.DataType, convert: Convert, plain: Convert) -> Convert:
    def check(value: Any) -> Any:
        try:
            fits = conforms(plain(value), dtype)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise InvalidInputError(f"expected {t.type_name(dtype)}, found {type(value).__name__} {value!r:.100}")
        return convert(value)

    return check


def _hint(dtype: t.DataType, found: object) -> str:
    match t.base_type(dtype):
        case t.IntType() if str(found) == "float64":
            return '; nulls turn ints into floats, keep them with .astype("Int64")'
        case t.DatetimeType() if str(found).startswith("datetime64"):
            return "; give it a time zone with .dt.tz_localize('UTC')"
        case _:
            return ""


def plain_values(series: "pd.Series[Any]") -> list[object]:
    """Return the values of a series that a user's function gave, with None for nulls, also inside lists and maps."""
    return [_plain(value) for value in series.astype(object).tolist()]


def _plain(value: object) -> object:
    match value:
        case list():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return None if is_null(value) else value


def key_values(values: Sequence[object], dtype: t.DataType, *, name: str) -> list[object]:
    """Return keys of a lookup in stored form, from the `plain_values` of a user's function; nulls stay null."""
    convert = cast(t.base_type(dtype))
    keys: list[object] = []
    for row, value in enumerate(values):
        try:
            keys.append(None if value is None else convert(value))
        except InvalidInputError as error:
            raise InvalidInputError(f"key {name}, row {row}: {error}") from None
    return keys
