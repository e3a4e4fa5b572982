"""Formats of date and time, spelled in the directives of Rust's chrono.

Reading (`strptime`) and writing (`strftime`) share the formats. `parse_format` parses a format when an expression is
checked. `caraway.expr.functions.chrono_reading` and `chrono_writing` define the meaning of the directives.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from caraway.errors import DefinitionError

# Directives that abbreviate a format, such as %F for %Y-%m-%d. Parsing a format expands them.
COMPOSITES = {
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "v": "%e-%b-%Y",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
    "+": "%Y-%m-%dT%H:%M:%S%.f%:z",
    "h": "%b",
}
# Directives for characters that a format can't contain as themselves, or that are hard to see.
SIGNS = {"%": "%", "t": "\t", "n": "\n"}
# Numbers that take the padding modifiers `-` (none), `_` (blanks) and `0`.
NUMBERS = frozenset("YCymdejHkIlMSuwUWGgV")
# Fractions of a second. %f is a number of nanoseconds. In the others a dot stands for a dot in the text, and a digit is
# the number of digits: %.3f is ".123", %3f is "123". Without a digit, %.f has as many as the fraction needs.
FRACTIONS = frozenset({"f", ".f", ".3f", ".6f", ".9f", "3f", "6f", "9f"})
NAMES = frozenset("bBaApPZs")
OFFSETS = frozenset({"z", ":z"})
DIRECTIVES = NUMBERS | FRACTIONS | NAMES | OFFSETS

# Directives that reading refuses, because they don't determine an instant: an abbreviation such as IST names several
# zones, and the numbers of weeks and centuries don't determine the day.
WRITTEN_ONLY = frozenset("ZCuwUWGgV")

_DIRECTIVE = re.compile(r"%(?P<pad>[-_0](?=[A-Za-z]))?(?P<name>\.[369]?f|[369]f|:z|.)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text in a format. When an instant is read, a blank in it matches any number of blanks, or none."""

    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A directive without its percent sign; `pad` is its modifier (`-`, `_`, `0`) or empty."""

    directive: str
    pad: str = ""


Item = Text | Field


@lru_cache(maxsize=1024)
def parse_format(text: str) -> tuple[Item, ...]:
    """Parse a format into text and directives; composites such as `%F` are expanded.

    Raises:
        DefinitionError: A directive is unknown; the message names it and its position.
    """
    items: list[Item] = []
    position = 0
    while position < len(text):
        if text[position] != "%":
            end = text.find("%", position)
            end = len(text) if end < 0 else end
            items.append(Text(text[position:end]))
            position = end
            continue
        found = _DIRECTIVE.match(text, position)
        assert found is not None  # noqa: S101 (it matches a percent sign alone)
        items.extend(_items(found, text))
        position = found.end()
    return tuple(items)


@lru_cache(maxsize=1024)
def parse_reading_format(text: str) -> tuple[Item, ...]:
    """Parse a format for reading, and check that it determines an instant.

    Raises:
        DefinitionError: A directive is unknown or can't be read, the year is missing, or the hour of a half day comes
            without the half.
    """
    items = parse_format(text)
    names = {item.directive for item in items if isinstance(item, Field)}
    if unread := sorted(names & WRITTEN_ONLY):
        raise DefinitionError(f'directive "%{unread[0]}" of the format "{text}" can be written, but not read')
    if "s" in names:
        return items
    if not names & {"Y", "y"}:
        raise DefinitionError(f'the format "{text}" has no year; add %Y, %y or %s')
    if names & {"I", "l"} and not names & {"p", "P"}:
        raise DefinitionError(f'the format "{text}" has the hour of a half day (%I), but not which half; add %p')
    return items


def _items(found: re.Match[str], text: str) -> tuple[Item, ...]:
    name, pad = found["name"] or "", found["pad"] or ""
    if pad and name not in NUMBERS:
        raise _unknown(found, text)
    if name in COMPOSITES:
        return parse_format(COMPOSITES[name])
    if name in SIGNS:
        return (Text(SIGNS[name]),)
    if name in DIRECTIVES:
        return (Field(name, pad),)
    raise _unknown(found, text)


def _unknown(found: re.Match[str], text: str) -> DefinitionError:
    known = " ".join(f"%{name}" for name in sorted(DIRECTIVES | COMPOSITES.keys() | SIGNS.keys()))
    spelled = f'unknown directive "{found[0]}"' if found["name"] else "a lone %"
    return DefinitionError(
        f'{spelled} at position {found.start()} of the format "{text}"; directives: {known} (%% is a percent sign)'
    )
