"""Numbers and times as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

# Durations are told in the two largest units that they have.
UNITS: Sequence[tuple[str, int]] = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
UNKNOWN = "–"


def number(value: object) -> str:
    """Return a number with its thousands separated, and a dash for None."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
        case _:
            return str(value)


def duration(seconds: float | None) -> str:
    """Return a time span, such as `3 min 5 s`, and a dash for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "0 s" if seconds <= 0 else "under 1 s"
    left, parts = int(seconds), list[str]()
    for name, size in UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def span(microseconds: int) -> str:
    """Return a time span that is given in microseconds; a negative one has no end."""
    return "for ever" if microseconds <= 0 else duration(timedelta(microseconds=microseconds).total_seconds())


def instant(value: datetime | str | float | None) -> datetime | None:
    """Return an instant of ISO text, of seconds since the epoch, or as it is."""
    match value:
        case None:
            return None
        case datetime():
            return value.astimezone(UTC)
        case str():
            return datetime.fromisoformat(value).astimezone(UTC)
        case _:
            return datetime.fromtimestamp(value, UTC)


def clock(value: datetime | str | float | None) -> str:
    """Return an instant to the second, in UTC, and a dash for None."""
    found = instant(value)
    return UNKNOWN if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


def ago(value: datetime | str | float | None, now: datetime) -> str:
    """Return how long ago an instant was, and a dash for None."""
    found = instant(value)
    return UNKNOWN if found is None else f"{duration((now - found).total_seconds())} ago"
