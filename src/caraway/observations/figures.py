"""Numbers and times as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

# A duration is shown in its largest unit, followed by the next smaller unit if there is a rest in that unit.
UNITS: Sequence[tuple[str, int]] = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
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


def seconds(value: float | None) -> str:
    """Return a short time in seconds with its milliseconds, a longer one as `duration` does, and a dash for None."""
    if value is None:
        return UNKNOWN
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:.1f} s" if value < 60 else duration(value)


def amount(value: float | None, unit: str) -> str:
    """Return a value of a chart: a time if its unit is `s`, else a number with its unit; and a dash for None."""
    return seconds(value) if unit == "s" else UNKNOWN if value is None else f"{number(value)}{unit}"


def share(value: float | None) -> str:
    """Return a share as percentage, and a dash for None. A share below 1 is never shown as 100%."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:,.0%}"
    shown = f"{value:.2%}"
    return "99.99%" if shown == "100.00%" else shown


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


def cut(text: str, characters: int) -> str:
    """Return a text whole, or its beginning with an ellipsis if it has more characters."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def size(value: float | None) -> str:
    """Return a number of bytes, and a dash for None."""
    if value is None:
        return UNKNOWN
    left, unit = float(value), 0
    while left >= 1024 and unit < len(SIZES) - 1:
        left, unit = left / 1024, unit + 1
    return f"{left:.0f} {SIZES[unit]}" if unit == 0 or left >= 100 else f"{left:.1f} {SIZES[unit]}"
