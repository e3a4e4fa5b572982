"""Path templates: which objects below a prefix are read, and of what time their rows are.

The grammar is that of `path=` (`caraway.connectors.s3_paths`): plain segments, `*` (one segment), `**` (any number),
`*.ext` at the end, and times as `strftime` writes them. All times of a path together name an interval, by which objects
can be left out that have no row between `since` and `until`.
"""

import calendar
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from caraway.dtypes.instants import US, instant_us

# The units of time, from the coarsest to the finest, each with the directives of strftime that name it. A week isn't
# among them, since it may be in two months. Neither is `%p`, which belongs to the hour.
_DIRECTIVES: Mapping[str, str] = {
    "year": "YyG",
    "month": "mbB",
    "day": "dj",
    "hour": "HI",
    "minute": "M",
    "second": "S",
    "microsecond": "f",
}
_UNITS = tuple(_DIRECTIVES)
DAY_OF_YEAR = "day of year"
_DIRECTIVE = re.compile(r"%(.)")
# A template with one of these directives gives no intervals: weeks, days of weeks, zones, and the forms of a locale.
_VAGUE = frozenset("UWVaAwuzZcxXG")
_DEEP, _ANY = "**", "*"

# The parts of a time that the segments of a path name: pairs of a unit and its number.
Times = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of event times in microseconds: `begin_us` is in it, `end_us` isn't."""

    begin_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The event times that a source takes, each bound in microseconds or None, and how far rows stray from a path."""

    since_us: int | None = None
    until_us: int | None = None
    spread_us: int = 0

    def may_have(self, interval: Interval | None) -> bool:
        """Return whether an object may have rows of these times; None: nothing is known of its times."""
        if interval is None:
            return True
        begin, end = interval.begin_us - self.spread_us, interval.end_us + self.spread_us
        return (self.since_us is None or end > self.since_us) and (self.until_us is None or begin < self.until_us)


@dataclass(frozen=True, slots=True)
class Found:
    """An object that matches a template, with the interval that its path names, if it names one."""

    interval: Interval | None


class Template:
    """A compiled template; without `suffix` each object below the prefix matches."""

    def __init__(self, suffix: str | None) -> None:
        segments = suffix.split("/") if suffix else [_DEEP]
        # A `**` at the end stands for the name of the object as well, so it takes at least one segment.
        self._segments = [*segments, _ANY] if segments[-1] == _DEEP else segments
        self._is_vague = any(_VAGUE & set(_DIRECTIVE.findall(segment)) for segment in segments)

    def match(self, key: Sequence[str]) -> Found | None:
        """Return whether the segments of a key behind the prefix match."""
        times = self._states(key).get(len(self._segments))
        if times is None:
            return None
        try:
            return Found(self._interval(times))
        except ValueError:
            # Each segment is valid by itself, but together they name a time that doesn't exist, such as the 31st of
            # June.
            return None

    def may_lead(self, folder: Sequence[str], wanted: Wanted) -> bool:
        """Return whether a folder, as segments behind the prefix, may have matching objects of the wanted times."""
        for reached, times in self._states(folder).items():
            if reached < len(self._segments):
                try:
                    if wanted.may_have(self._interval(times)):
                        return True
                except ValueError:
                    continue
        return False

    def is_named(self, folder: Sequence[str]) -> bool:
        """Return whether the last one of some segments is written in the template, rather than met by a wildcard."""
        return bool(folder) and folder[-1] in self._segments

    def _states(self, key: Sequence[str]) -> dict[int, Times]:
        """Return the positions in the template that can be reached by a key, each with the times on the way."""
        states = self._skipped({0: ()})
        for segment in key:
            after: dict[int, Times] = {}
            for at, times in states.items():
                if at == len(self._segments):
                    continue
                wanted = self._segments[at]
                if wanted == _DEEP:
                    after.setdefault(at, times)
                elif "%" in wanted:
                    if (found := _parsed(wanted, segment)) is not None:
                        after.setdefault(at + 1, times + found)
                elif wanted in {_ANY, segment} or (wanted.startswith("*.") and segment.endswith(wanted[1:])):
                    after.setdefault(at + 1, times)
            states = self._skipped(after)
        return states

    def _skipped(self, states: dict[int, Times]) -> dict[int, Times]:
        """Add the positions behind `**`, which may stand for no segment at all."""
        for at, times in list(states.items()):
            reached = at
            while reached < len(self._segments) and self._segments[reached] == _DEEP:
                reached += 1
                states.setdefault(reached, times)
        return states

    def _interval(self, times: Times) -> Interval | None:
        """Return the interval that some parts of a time name; None if they name none.

        Raises `ValueError` if there is no such time.
        """
        parts = dict(times)
        if self._is_vague or any(parts[name] != value for name, value in times):
            return None
        if DAY_OF_YEAR in parts and "year" in parts:
            day = datetime(parts["year"], 1, 1, tzinfo=UTC) + timedelta(days=parts[DAY_OF_YEAR] - 1)
            if day.year != parts["year"]:
                raise ValueError(f"the year {parts['year']} has no day {parts[DAY_OF_YEAR]}")
            parts |= {"month": day.month, "day": day.day}
        known = [unit for unit in _UNITS if unit in parts]
        # Each unit needs the coarser ones: an hour without its day is many intervals.
        if not known or known != list(_UNITS[: len(known)]):
            return None
        begin = datetime(parts["year"], parts.get("month", 1), parts.get("day", 1), tzinfo=UTC)
        begin += timedelta(
            hours=parts.get("hour", 0),
            minutes=parts.get("minute", 0),
            seconds=parts.get("second", 0),
            microseconds=parts.get("microsecond", 0),
        )
        begin_us = instant_us(begin)
        return Interval(begin_us, begin_us + _length(begin, known[-1]) // US)


def _length(begin: datetime, unit: str) -> timedelta:
    match unit:
        case "year":
            return timedelta(days=366 if calendar.isleap(begin.year) else 365)
        case "month":
            return timedelta(days=calendar.monthrange(begin.year, begin.month)[1])
        case _:
            return timedelta(**{f"{unit}s": 1})


def _parsed(pattern: str, segment: str) -> Times | None:
    """Return the parts of the time in a segment; None if the segment isn't of the pattern."""
    directives = _DIRECTIVE.findall(pattern)
    named = {unit: sorted(set(letters) & set(directives)) for unit, letters in _DIRECTIVES.items()}
    try:
        if named["year"]:
            found = datetime.strptime(segment, pattern)  # noqa: DTZ007 (the zone is that of all paths, UTC)
        else:
            # Without a year Python takes 1900, which has no 29th of February.
            found = datetime.strptime(f"2000 {segment}", f"%Y {pattern}")  # noqa: DTZ007
    except ValueError:
        return None
    if "I" in directives and "p" not in directives:
        # `%I` without `%p` doesn't tell the morning from the afternoon, so the time isn't known to the hour.
        named["hour"] = []
    parts = [(unit, int(getattr(found, unit))) for unit, letters in named.items() if letters]
    if "j" in directives:
        # The month and the day depend on the year, which another segment may name.
        parts = [part for part in parts if part[0] not in {"month", "day"}]
        parts.append((DAY_OF_YEAR, found.timetuple().tm_yday))
    return tuple(parts)
