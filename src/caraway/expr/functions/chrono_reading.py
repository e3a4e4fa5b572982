"""Reading of instants from text (`strptime`).

A format becomes a regular expression with possessive quantifiers, in the syntax that Java and Python share: each number
takes as many digits as it can, up to its width, after any number of blanks; names are read in any case. If a format has
a field twice, such as the month by number and by name, both must agree in the text. A missing month or day is 1, a
missing time is midnight. A leap second (60) is refused. Digits beyond microseconds are dropped.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

from caraway.dtypes.instants import instant_us
from caraway.errors import InvalidInputError
from caraway.expr.functions.chrono_format import Text, parse_reading_format
from caraway.expr.functions.local_time import local_instant

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# The directive %y reads two digits: 00 to 69 are the years 2000 to 2069, and 70 to 99 are 1970 to 1999.
CENTURY_BREAK = 70

Reader = Callable[[str], int]


def _short(names: tuple[str, ...]) -> str:
    return "(?i:" + "|".join(name[:3] for name in names) + ")"


def _any(names: tuple[str, ...]) -> str:
    # The long names come first, because a short one is the beginning of its long one.
    return "(?i:" + "|".join([*names, *(name[:3] for name in names)]) + ")"


_TWO = r"\s*+(\d{1,2}+)"
_DOTTED = r"(?:\.(\d++))?+"
_OFFSET = r"\s*+([+-]\d\d:?+\d\d)"
PATTERNS = {
    "Y": r"\s*+(\d{1,4}+)",
    "j": r"\s*+(\d{1,3}+)",
    "s": r"\s*+([+-]?+\d++)",
    **dict.fromkeys(["y", "m", "d", "e", "H", "k", "I", "l", "M", "S"], _TWO),
    "f": r"\s*+(\d{1,9}+)",
    **dict.fromkeys([".f", ".3f", ".6f", ".9f"], _DOTTED),
    "3f": r"(\d{3})",
    "6f": r"(\d{6})",
    "9f": r"(\d{9})",
    "b": f"({_short(MONTHS)})",
    "B": f"({_any(MONTHS)})",
    "a": f"({_short(WEEKDAYS)})",
    "A": f"({_any(WEEKDAYS)})",
    "p": "((?i:am|pm))",
    "P": "((?i:am|pm))",
    "z": _OFFSET,
    ":z": _OFFSET,
}
# Several directives may read the same field, as %e and %d both read the day of the month. Each key is such a directive,
# and its value is the directive by whose name this module knows the field.
FIELDS = {"e": "d", "k": "H", "l": "I", "P": "p", "B": "b", "A": "a", ":z": "z"}


def reading_pattern(format: str) -> tuple[str, tuple[str, ...]]:
    """Return the pattern that a text in a format matches as a whole, and the fields that the pattern's groups hold.

    The pattern is to be compiled so that its classes of digits and blanks have only ASCII's characters.
    """
    parts: list[str] = []
    names: list[str] = []
    for item in parse_reading_format(format):
        if isinstance(item, Text):
            pieces = re.split(r"([ \t\n\r\f\v]+)", item.text)
            parts.extend(r"\s*+" if position % 2 else re.escape(piece) for position, piece in enumerate(pieces))
        else:
            parts.append(PATTERNS[item.directive])
            names.append(FIELDS.get(item.directive, item.directive))
    return "".join(parts), tuple(names)


@lru_cache(maxsize=1024)
def reader(format: str, timezone: str) -> Reader:
    """Return the function from text in a format to microseconds since the epoch; text without offset is in `timezone`.

    The function raises `InvalidInputError`, naming the text, for what isn't in the format or is no single instant.
    """
    pattern, names = reading_pattern(format)
    compiled = re.compile(pattern, re.ASCII)

    def read(text: str) -> int:
        found = compiled.fullmatch(text)
        fields = None if found is None else _fields(names, found.groups())
        if fields is None:
            raise _unparsable(text, format, "it does not match")
        try:
            return _instant(fields, timezone)
        except (ValueError, OverflowError) as error:
            raise _unparsable(text, format, str(error)) from None

    return read


def _unparsable(text: str, format: str, reason: str) -> InvalidInputError:
    return InvalidInputError(f'"{text}" is no datetime in the format "{format}": {reason}')


def _fields(names: tuple[str, ...], values: tuple[str | None, ...]) -> dict[str, int] | None:
    """Return the numbers in a text by field; None if two of the same field differ."""
    fields: dict[str, int] = {}
    for name, value in zip(names, values, strict=True):
        if value is not None:
            field, number = _number(name, value)
            if fields.setdefault(field, number) != number:
                return None
    return fields


def _number(name: str, value: str) -> tuple[str, int]:
    """Return the field that a group holds, and its number."""
    match name:
        case "b":
            return "m", next(month for month, word in enumerate(MONTHS, 1) if word[:3].lower() == value[:3].lower())
        case "a":
            return "a", next(day for day, word in enumerate(WEEKDAYS) if word[:3].lower() == value[:3].lower())
        case "p":
            return "p", int(value.lower() == "pm")
        case "z":
            hours, minutes = int(value[1:3]), int(value[-2:])
            # An offset such as +01:75 is wrong. The result for it is 10,000 minutes, which is more than a day, so that
            # `_instant` refuses it.
            return "z", (hours * 60 + minutes) * (-1 if value[0] == "-" else 1) if minutes < 60 else 10_000
        case "f":
            return "us", int(value) // 1_000
        case ".f" | ".3f" | ".6f" | ".9f" | "3f" | "6f" | "9f":
            return "us", int(value[:6].ljust(6, "0"))
        case _:
            return name, int(value)


def _instant(fields: dict[str, int], timezone: str) -> int:
    if "s" in fields:
        us = fields["s"] * 1_000_000 + fields.get("us", 0)
        if not -(2**63) <= us < 2**63:
            raise ValueError("it is beyond the range of instants")
        return us
    wall = datetime.combine(_day(fields), datetime.min.time()) + _time_of_day(fields)
    if "z" not in fields:
        return local_instant(wall, timezone)
    if abs(fields["z"]) >= 24 * 60:
        raise ValueError("the offset is out of range")
    return instant_us(wall) - fields["z"] * 60_000_000


def _day(fields: dict[str, int]) -> datetime:
    short = fields.get("y")
    year = fields.get("Y", 0 if short is None else short + (2000 if short < CENTURY_BREAK else 1900))
    if short is not None and year % 100 != short:
        raise ValueError("the years differ")
    if "j" in fields:
        day = datetime(year, 1, 1) + timedelta(days=fields["j"] - 1)  # noqa: DTZ001 (a wall time)
        if day.year != year or fields.get("m", day.month) != day.month or fields.get("d", day.day) != day.day:
            raise ValueError("the day of the year is another one")
    else:
        day = datetime(year, fields.get("m", 1), fields.get("d", 1))  # noqa: DTZ001
    if fields.get("a", day.weekday()) != day.weekday():
        raise ValueError(f"{day.date()} is a {WEEKDAYS[day.weekday()]}")
    return day


def _time_of_day(fields: dict[str, int]) -> timedelta:
    hour = fields.get("H")
    if "I" in fields:
        if not 1 <= fields["I"] <= 12:
            raise ValueError("the hour of a half day must be in 1..12")
        half = fields["I"] % 12 + 12 * fields["p"]
        if hour not in (None, half):
            raise ValueError("the hours differ")
        hour = half
    elif hour is not None and fields.get("p", hour // 12) != hour // 12:
        raise ValueError("the hour is in the other half of the day")
    hour, minute, second = hour or 0, fields.get("M", 0), fields.get("S", 0)
    if not (hour < 24 and minute < 60 and second < 60):
        raise ValueError("hour, minute or second is out of range")
    return timedelta(hours=hour, minutes=minute, seconds=second, microseconds=fields.get("us", 0))
