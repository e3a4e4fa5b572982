"""Writing of instants as text (`strftime`).

Numbers are padded with zeros (`%e %k %l` with blanks) unless a modifier says otherwise, names are English. `%f` has
nine digits. `%.f` has as many of none, three or six digits after its dot as the fraction needs. An offset is rounded to
whole minutes, half a minute up.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

from caraway.dtypes.instants import EPOCH
from caraway.errors import InvalidInputError
from caraway.expr.functions.chrono_format import Field, Text, parse_format
from caraway.expr.functions.chrono_reading import MONTHS, WEEKDAYS
from caraway.expr.functions.local_time import time_zone

Writer = Callable[[int], str]
_Number = Callable[[datetime], int]

# For each directive of a number the width, the padding, and the function that computes the number.
_NUMBERS: dict[str, tuple[int, str, _Number]] = {
    "Y": (4, "0", lambda t: t.year),
    "C": (2, "0", lambda t: t.year // 100),
    "y": (2, "0", lambda t: t.year % 100),
    "m": (2, "0", lambda t: t.month),
    "d": (2, "0", lambda t: t.day),
    "e": (2, " ", lambda t: t.day),
    "j": (3, "0", lambda t: t.timetuple().tm_yday),
    "H": (2, "0", lambda t: t.hour),
    "k": (2, " ", lambda t: t.hour),
    "I": (2, "0", lambda t: t.hour % 12 or 12),
    "l": (2, " ", lambda t: t.hour % 12 or 12),
    "M": (2, "0", lambda t: t.minute),
    "S": (2, "0", lambda t: t.second),
    "u": (1, "0", lambda t: t.isoweekday()),
    "w": (1, "0", lambda t: t.isoweekday() % 7),
    # The weeks of %U begin on Sunday, those of %W on Monday. %V is ISO's week, %G and %g are its year.
    "U": (2, "0", lambda t: (t.timetuple().tm_yday + 6 - t.isoweekday() % 7) // 7),
    "W": (2, "0", lambda t: (t.timetuple().tm_yday + 6 - t.weekday()) // 7),
    "V": (2, "0", lambda t: t.isocalendar().week),
    "G": (4, "0", lambda t: t.isocalendar().year),
    "g": (2, "0", lambda t: t.isocalendar().year % 100),
}
_PADDING = {"-": "", "_": " ", "0": "0"}


@lru_cache(maxsize=1024)
def writer(format: str, timezone: str) -> Writer:
    """Return the function from microseconds since the epoch to text in a format and a time zone.

    The function raises `InvalidInputError` for an instant outside of the years 1 to 9999.
    """
    zone, parts = time_zone(timezone), [_part(item) for item in parse_format(format)]

    def write(us: int) -> str:
        try:
            local = (EPOCH + timedelta(microseconds=us)).astimezone(zone)
        except OverflowError:
            raise InvalidInputError(f"strftime: {us} us after 1970 is outside of the years 1 to 9999") from None
        return "".join([part(local) for part in parts])

    return write


def _part(item: Text | Field) -> Callable[[datetime], str]:
    if isinstance(item, Text):
        text = item.text
        return lambda _: text
    if item.directive in _NUMBERS:
        width, padding, number = _NUMBERS[item.directive]
        fill = _PADDING.get(item.pad, padding)
        return lambda local: str(number(local)).rjust(width, fill) if fill else str(number(local))
    match item.directive:
        case "f" | "9f":
            return lambda local: f"{local.microsecond:06}000"
        case "3f":
            return lambda local: f"{local.microsecond // 1_000:03}"
        case "6f":
            return lambda local: f"{local.microsecond:06}"
        case ".f":
            return _fraction
        case ".3f" | ".6f" | ".9f" as dotted:
            digits = int(dotted[1])
            return lambda local: "." + f"{local.microsecond:06}000"[:digits]
        case directive:
            return _NAMES[directive]


def _fraction(local: datetime) -> str:
    us = local.microsecond
    if us == 0:
        return ""
    return f".{us:06}" if us % 1_000 else f".{us // 1_000:03}"


def _offset(local: datetime, colon: str) -> str:
    offset = local.utcoffset() or timedelta()
    minutes = (abs(offset) + timedelta(seconds=30)) // timedelta(minutes=1)
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60:02}{colon}{minutes % 60:02}"


_NAMES: dict[str, Callable[[datetime], str]] = {
    "s": lambda local: str((local - EPOCH) // timedelta(seconds=1)),
    "b": lambda local: MONTHS[local.month - 1][:3],
    "B": lambda local: MONTHS[local.month - 1],
    "a": lambda local: WEEKDAYS[local.weekday()][:3],
    "A": lambda local: WEEKDAYS[local.weekday()],
    "p": lambda local: "PM" if local.hour >= 12 else "AM",
    "P": lambda local: "pm" if local.hour >= 12 else "am",
    "Z": lambda local: local.tzname() or "",
    "z": lambda local: _offset(local, ""),
    ":z": lambda local: _offset(local, ":"),
}
