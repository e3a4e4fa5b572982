"""Conversions of instants and days."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from caraway.dtypes.instants import day_number, instant_us, iso_instant, to_date, to_datetime
from caraway.dtypes.types import INT, DatetimeType, DateType
from caraway.dtypes.values import CONVERSIONS, Conversions, casts, conforms, is_null, mismatch


def _datetime(value: Any) -> int:
    if is_null(value):
        raise mismatch("datetime", value)
    return instant_us(value)


def _date(value: Any) -> int:
    if is_null(value):
        raise mismatch("date", value)
    return day_number(value)


def _is_instant(value: Any, dtype: DatetimeType, _widen: bool) -> bool:
    # An int conforms too, as a number of seconds, milliseconds, microseconds or nanoseconds since the epoch.
    is_instant = isinstance(value, (datetime, pd.Timestamp, np.datetime64)) and not is_null(value)
    return is_instant or (conforms(value, INT) and casts(value, dtype))


def _is_whole(value: Any, convert: Callable[[int], object]) -> bool:
    """Return whether a value is a number of microseconds or days in the years that Python supports."""
    if type(value) is not int:
        return False
    try:
        convert(value)
    except (OverflowError, ValueError):
        return False
    return True


CONVERSIONS[DatetimeType] = Conversions(
    written="datetime",
    cast=lambda _, __: _datetime,
    conforms=_is_instant,
    arrow=lambda _: pa.timestamp("us", tz="UTC"),
    python=(datetime, np.datetime64),
    decode=lambda _: to_datetime,
    to_json=lambda _: iso_instant,
    has_form=lambda value, _: _is_whole(value, to_datetime),
    taken_from=lambda kind: (
        (kind.startswith("datetime64[") and ", " in kind) or (kind.startswith("timestamp[") and "tz=" in kind)
    ),
    strict=False,
)
CONVERSIONS[DateType] = Conversions(
    written="date",
    cast=lambda _, __: _date,
    conforms=lambda value, _, __: isinstance(value, date),
    arrow=lambda _: pa.date32(),
    python=(date,),
    decode=lambda _: to_date,
    to_json=lambda _: lambda value: to_date(value).isoformat(),
    has_form=lambda value, _: _is_whole(value, to_date),
)
