"""Conversion of instants and days, in any form, to integers and back.

An instant is int microseconds since 1970-01-01 UTC, a day is int days since then.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from caraway.errors import InvalidInputError, quoted, shortened

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)
US_PER_DAY = 86_400_000_000
# The greatest number of seconds since the epoch whose nanoseconds fit int64; it is in the year 2262. A number without a
# unit is read in the first of these units that gives an instant in the years 1677 to 2262: seconds, milliseconds,
# microseconds, nanoseconds.
MAX_SECONDS = 9_223_372_036
US = timedelta(microseconds=1)
# The first and the last instant that Python's datetime can hold in UTC, in microseconds.
MIN_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // US
MAX_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // US
# A text with more characters is refused as an instant without being parsed. The longest texts in use, those of RFC 2822
# with a comment, have some 50.
MAX_TEXT = 200

# The number of values of a column that are searched for a zone; a sender writes all its times in one way.
SAMPLED_VALUES = 20

# A date with a time of day, and without a zone behind it.
_WITHOUT_ZONE = re.compile(r"\d+-\d+-\d+[ T]\d+:\d+(:[\d.,]+)?\s*")
_SLASHES = re.compile(r"^(\d{1,2})/(\d{1,2})/(\d{4})", re.ASCII)


def instant_us(value: Any) -> int:
    """Return a datetime, date, ISO or RFC 2822 string or epoch number as microseconds since the epoch.

    A value without a zone is UTC. The unit of a number is the first of s, ms, us, ns in which it lies in 1677–2262.

    Raises:
        InvalidInputError: The value denotes no instant.
    """
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime(warn=False)
    if isinstance(value, datetime):
        return ((value.replace(tzinfo=UTC) if value.tzinfo is None else value) - EPOCH) // US
    if isinstance(value, bool):
        raise InvalidInputError(f"expected datetime, found bool {value!r}")
    if isinstance(value, (int, np.integer)):
        return _from_number(int(value))
    if isinstance(value, (float, np.floating, Decimal)) and isfinite(value):
        return _from_number(int(value))
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, date):
        return (value - EPOCH_DAY).days * US_PER_DAY
    raise InvalidInputError(f"expected datetime, found {type(value).__name__} {quoted(value)}")


def lacks_zone(value: object) -> bool:
    """Return whether a value is a datetime, or a text of one, that has a time of day and no zone."""
    if isinstance(value, str):
        return _WITHOUT_ZONE.fullmatch(value) is not None
    return value is not pd.NaT and isinstance(value, datetime) and value.tzinfo is None


def without_zone(name: str) -> str:
    """Return the remark on a column of times that lack a zone."""
    return f"times of {name} have no zone and are taken as UTC; write them as 2026-01-31T12:00:00Z"


def day_number(value: Any) -> int:
    """Return a date, datetime or ISO string as days since the epoch.

    Raises `InvalidInputError` if the value denotes no day.
    """
    if isinstance(value, (datetime, np.datetime64)):
        return instant_us(value) // US_PER_DAY
    if isinstance(value, date):
        return (value - EPOCH_DAY).days
    if isinstance(value, str):
        try:
            return (date.fromisoformat(value) - EPOCH_DAY).days
        except ValueError:
            raise InvalidInputError(f'expected date as YYYY-MM-DD, found "{shortened(value)}"') from None
    raise InvalidInputError(f"expected date, found {type(value).__name__} {quoted(value)}")


def to_datetime(us: int) -> datetime:
    """Return an instant as a datetime in UTC."""
    return EPOCH + timedelta(microseconds=us)


def to_date(days: int) -> date:
    """Return a day as a date."""
    return EPOCH_DAY + timedelta(days=days)


def iso_instant(us: int) -> str:
    """Return an instant as ISO 8601 in UTC, with microseconds if it has any."""
    return to_datetime(us).replace(tzinfo=None).isoformat() + "Z"


def _parse(text: str) -> int:
    digits = text.strip()
    if len(digits) > MAX_TEXT:
        raise InvalidInputError(f'expected datetime (ISO 8601), found "{shortened(text)}"')
    if digits.removeprefix("-").isdecimal():
        return _from_number(int(digits))
    try:
        parsed = datetime.fromisoformat(_year_first(digits))
    except ValueError:
        try:
            parsed = parsedate_to_datetime(digits)
        except (ValueError, TypeError, IndexError, OverflowError):
            raise InvalidInputError(f'expected datetime (ISO 8601), found "{shortened(text)}"') from None
    us = ((parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed) - EPOCH) // US
    if not MIN_US <= us <= MAX_US:
        # The conversion to UTC moved the instant out of the years 1 to 9999, so no datetime in UTC can show it.
        raise InvalidInputError(f'expected datetime in the years 1 to 9999 UTC, found "{digits}"')
    return us


def iso_instants(texts: Sequence[str]) -> list[int] | None:
    """Return what `instant_us` returns for texts that begin with "YYYY-"; None if one begins otherwise or is wrong."""
    try:
        parsed = [datetime.fromisoformat(text) for text in texts if text[4] == "-"]
    except (ValueError, IndexError):
        return None
    if len(parsed) != len(texts):
        # Some text doesn't begin with a year, such as a number or a date with slashes.
        return None
    instants = [((at.replace(tzinfo=UTC) if at.tzinfo is None else at) - EPOCH) // US for at in parsed]
    return instants if not instants or (min(instants) >= MIN_US and max(instants) <= MAX_US) else None


def _year_first(text: str) -> str:
    """Return a date with slashes, month first, in ISO's order."""
    return _SLASHES.sub(lambda date: f"{date[3]}-{date[1]:0>2}-{date[2]:0>2}", text)


def _from_number(number: int) -> int:
    size = abs(number)
    if size <= MAX_SECONDS:
        return number * 1_000_000
    if size <= MAX_SECONDS * 1_000:
        return number * 1_000
    if size <= MAX_SECONDS * 1_000_000:
        return number
    if size < 2**63:
        return number // 1_000
    raise InvalidInputError(f"expected datetime, found {quoted(number)}, which is out of range as an epoch offset")
