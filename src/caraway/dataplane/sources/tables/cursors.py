"""The values of cursors and primary keys: as JSON, compared, and moved back by a time.

A cursor's *rank* is a number by which values are compared here. It has the order of the database as far as this module
needs it: ranks of texts that are times are whole seconds, because "12:00:00Z" stands behind "12:00:00.5Z" as a text.
"""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from caraway.dtypes.instants import EPOCH, US, US_PER_DAY, to_datetime

US_PER_SECOND = 1_000_000
# A text with a date, and perhaps a time of day, a fraction and a zone.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:([T ])(\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)


class CursorKind(StrEnum):
    """How the values of a cursor grow."""

    NUMBER = "number"
    TIME = "time"
    DATE = "date"
    TEXT = "text"
    UUID = "uuid"


class NotATimeError(ValueError):
    """A text isn't a time, or is written in another way than the others."""


def rank(kind: CursorKind, value: Any) -> Any:
    """Return the rank of a value.

    Raises:
        NotATimeError: The value is a text that isn't a time, or one of the database that Python doesn't have.
    """
    if isinstance(value, str) != (kind is CursorKind.TEXT):
        raise NotATimeError(str(value))
    match kind:
        case CursorKind.NUMBER:
            return value
        case CursorKind.TIME:
            return ((value.replace(tzinfo=UTC) if value.tzinfo is None else value) - EPOCH) // US
        case CursorKind.DATE:
            return value.toordinal()
        case CursorKind.TEXT:
            return _seconds(value)
        case CursorKind.UUID:
            return value.int


def tag(kind: CursorKind, value: Any) -> str:
    """Return the value as hexadecimal digits, for the mark of a row; empty if its order can't be told from them."""
    found = rank(kind, value)
    return f"{found:x}" if isinstance(found, int) and found >= 0 and kind is not CursorKind.UUID else ""


def from_tag(digits: str) -> int:
    """Return the rank of a value from its tag."""
    return int(digits, 16)


def moved_back(kind: CursorKind, value: Any, by_us: int, now_us: int | None, overlap: int) -> Any:
    """Return the value from which the next round reads again.

    Args:
        kind: The kind of the cursor.
        value: The greatest value that was read.
        by_us: How much later than its time a row may become visible, in microseconds.
        now_us: The database's time. A row of the future doesn't make later rows of the present be missed.
        overlap: How many numbers are read again, of cursors that are numbers.
    """
    match kind:
        case CursorKind.NUMBER:
            return value - overlap
        case CursorKind.UUID:
            return value
        case CursorKind.TIME:
            us = rank(kind, value)
            at = to_datetime(max(_FIRST_US, (us if now_us is None else min(us, now_us)) - by_us))
            return at.replace(tzinfo=None) if value.tzinfo is None else at
        case CursorKind.DATE:
            day = value.toordinal() * US_PER_DAY - by_us
            if now_us is not None:
                day = min(day, (now_us // US_PER_DAY + EPOCH.toordinal()) * US_PER_DAY - by_us)
            return date.fromordinal(max(1, day // US_PER_DAY))
        case CursorKind.TEXT:
            return _text_back(value, by_us, now_us)


_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // US


def _parts(text: str) -> tuple[str, str | None, str | None]:
    found = _TIME.fullmatch(text)
    if found is None:
        raise NotATimeError(text)
    return found[1], found[2], found[3]


def _seconds(text: str) -> int:
    """Return the seconds that a text shows, without regard to its zone, which doesn't count in the order of texts."""
    day, _, time = _parts(text)
    try:
        at = datetime.fromisoformat(f"{day}T{time or '00:00:00'}")
    except ValueError:
        raise NotATimeError(text) from None
    return (at.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


def _text_back(text: str, by_us: int, now_us: int | None) -> str:
    """Return the beginning of all texts of the second that is so much earlier; as a text it stands before them."""
    _, separator, _ = _parts(text)
    seconds = _seconds(text)
    if now_us is not None:
        # The text may be the local time of a zone that is up to 14 hours ahead of UTC.
        seconds = min(seconds, now_us // US_PER_SECOND + 14 * 3600)
    back = max(_FIRST_US // US_PER_SECOND, seconds - -(-by_us // US_PER_SECOND))
    at = to_datetime(back * US_PER_SECOND).replace(tzinfo=None)
    return at.date().isoformat() if separator is None else at.isoformat(sep=separator, timespec="seconds")


def to_json(value: Any) -> object:
    """Return a value of a cursor or primary key as JSON.

    Raises:
        TypeError: Values of this type can't be keys here.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"time": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case UUID():
            return {"uuid": str(value)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": base64.b64encode(bytes(value)).decode()}
        case _:
            raise TypeError(type(value).__name__)


def from_json(value: Any) -> Any:
    """Return the value that `to_json` made JSON of."""
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"time": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case {"uuid": text}:
            return UUID(text)
        case {"bytes": text}:
            return base64.b64decode(text)
        case _:
            return value


def all_to_json(values: Sequence[Any]) -> list[object]:
    """Return values as JSON."""
    return [to_json(value) for value in values]


def all_from_json(values: Sequence[Any] | None) -> list[Any] | None:
    """Return the values that `all_to_json` made JSON of."""
    return None if values is None else [from_json(value) for value in values]


def shown(value: Any) -> str:
    """Return a value for people."""
    return value.isoformat() if isinstance(value, (datetime, date)) else str(value)
