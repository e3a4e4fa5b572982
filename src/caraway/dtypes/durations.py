"""Duration strings such as "1.5h" or "2d 4h"."""

import re
from decimal import Decimal
from functools import lru_cache

from caraway.errors import DefinitionError, DefinitionTypeError

US_PER_SECOND = 1_000_000
US_PER_UNIT = {
    "y": 365 * 86_400 * US_PER_SECOND,
    "w": 7 * 86_400 * US_PER_SECOND,
    "d": 86_400 * US_PER_SECOND,
    "h": 3_600 * US_PER_SECOND,
    "m": 60 * US_PER_SECOND,
    "s": US_PER_SECOND,
}
UNITS = "y (365 days), w, d, h, m (minutes), s"
FOREVER = "forever"
MAX_US = 2**63 - 1

_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9.]+)|(?P<unit>[ywdhms])|(?P<other>\S))", re.ASCII)


def parse_duration(text: str) -> int:
    """Return a duration such as "2d 4h" in microseconds.

    Args:
        text: Unsigned numbers, each with a unit (y w d h m s), in any order; they are added up. Blanks are ignored.

    Raises:
        DefinitionTypeError: `text` is no string, or digits only.
        DefinitionError: `text` isn't a duration; the message has the position.
    """
    if not isinstance(text, str):
        raise DefinitionTypeError(f'a duration is a string such as "1d 12h", not {type(text).__name__} {text!r}')
    return _parse(text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> int:
    if text.isdecimal():
        raise DefinitionTypeError(f'duration "{text}" has no unit; write for example "{text}s". Units: {UNITS}')
    total, number = Decimal(0), None
    for token in _TOKEN.finditer(text.rstrip()):
        match token.lastgroup:
            case "number" if number is None:
                number = _number(token["number"], text)
            case "unit" if number is not None:
                total, number = total + number * US_PER_UNIT[token["unit"]], None
            case "unit":
                raise DefinitionError(f'duration "{text}": no number before unit "{token["unit"]}"')
            case "number":
                raise DefinitionError(f'duration "{text}": no unit before "{token["number"]}". Units: {UNITS}')
            case _:
                raise DefinitionError(f'duration "{text}": unexpected character "{token["other"]}". Units: {UNITS}')
    if number is not None or not text.strip():
        raise DefinitionError(f'duration "{text}" ends without a unit. Units: {UNITS}')
    if total > MAX_US:
        raise DefinitionError(f'duration "{text}" is longer than 292,000 years')
    return int(total)


def print_duration(duration_us: int) -> str:
    """Return a duration as users write it: "7d", "1h 30m", "0s". Parts of a second are a decimal fraction."""
    parts, left = [], duration_us
    for unit in "dhm":
        count, left = divmod(left, US_PER_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    if left or not parts:
        parts.append(f"{Decimal(left) / US_PER_SECOND:f}s")
    return " ".join(parts)


def _number(digits: str, text: str) -> Decimal:
    if digits.count(".") > 1 or digits == ".":
        raise DefinitionError(f'duration "{text}": "{digits}" is not a number')
    return Decimal(digits)
