"""Charts of pass rates and of ages over time, as coordinates for SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# The size of a chart in pixels, and the room for the labels of its axes.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 132, 56, 20, 8
# The most points of a chart. Hours beyond them are added up, since points closer than some pixels can't be told apart.
MAX_POINTS = 120
# The rates at which the axis may begin. Most rates are close to 1, where a chart from 0 on would show a straight line.
FLOORS = (0.999, 0.99, 0.95, 0.9, 0.8, 0.5, 0.0)
HOUR = timedelta(hours=1)
# The most points of a line of ages. A point of several minutes has the greatest age of them.
MAX_AGES = 240
# The ages, in seconds, at which the axis of ages may end.
CEILINGS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 6 * 3_600, 24 * 3_600)
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The rows of some hours.

    Attributes:
        start: The beginning of the first hour.
        evaluated: How many rows were looked at.
        failed: How many of them failed.
    """

    start: datetime
    evaluated: int
    failed: int

    @property
    def rate(self) -> float:
        """The share of rows that passed."""
        return (self.evaluated - self.failed) / self.evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The size of a chart's picture, and the bounds of its drawing within."""

    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Frame):
    """A line of pass rates, with the expected rate.

    Attributes:
        points: The points, oldest first.
        line: The path of the line, which is interrupted where there are no rows.
        marks: The places of the points that are below the expected rate.
        threshold: The height of the expected rate.
        floor: The rate at the bottom.
        hours: How many hours a point has.
    """

    points: Sequence[Point]
    line: str
    marks: Sequence[tuple[float, float]]
    threshold: float
    floor: float
    hours: int


def chart_of(series: Sequence[Mapping[str, Any]], mostly: float) -> Chart | None:
    """Return the chart of a series of hours; None if no row was looked at.

    Args:
        series: The hours, oldest first: `start`, `evaluated` and `failed`, as the API has them.
        mostly: The share of rows that should pass.
    """
    hours = [
        Point(start=datetime.fromisoformat(one["start"]), evaluated=one["evaluated"], failed=one["failed"])
        for one in series
        if one["evaluated"]
    ]
    if not hours:
        return None
    first, last = hours[0].start, hours[-1].start
    size = -(-(round((last - first) / HOUR) + 1) // MAX_POINTS)
    points = _added(hours, size)
    lowest = min(mostly, *(point.rate for point in points), 1.0)
    floor = next((found for found in FLOORS if found < lowest), 0.0)
    span = max((last - first) / HOUR, 1.0)

    def x(point: Point) -> float:
        return round(LEFT + (point.start - first) / HOUR / span * (WIDTH - LEFT - 8), 1)

    def y(rate: float) -> float:
        return round(TOP + (1 - rate) / (1 - floor) * (HEIGHT - BOTTOM - TOP), 1)

    pieces, before = list[str](), None
    for point in points:
        joined = before is not None and point.start - before.start <= size * HOUR
        # A point without neighbours is a short stroke, since a path of one place has no length.
        pieces.append(f"{'L' if joined else 'M'}{x(point)} {y(point.rate)}" + ("" if joined else "h1.5"))
        before = point
    return Chart(
        points=points,
        line="".join(pieces),
        marks=[(x(point), y(point.rate)) for point in points if point.rate < mostly],
        threshold=y(mostly),
        floor=floor,
        hours=size,
    )


def _added(hours: Sequence[Point], size: int) -> list[Point]:
    """Return points of `size` hours each, counted from the first hour."""
    found: dict[int, Point] = {}
    for hour in hours:
        place = round((hour.start - hours[0].start) / HOUR) // size
        known = found.get(place)
        found[place] = Point(
            start=hours[0].start + place * size * HOUR,
            evaluated=hour.evaluated + (0 if known is None else known.evaluated),
            failed=hour.failed + (0 if known is None else known.failed),
        )
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeChart(Frame):
    """A line of ages over time.

    Attributes:
        line: The path of the line, which is interrupted where there are no ages.
        ceiling: The age at the top in seconds.
        greatest: The greatest age in seconds.
        greatest_at: Its minute, in seconds since the epoch, as `first` and `last` are.
        newest: The age of the last minute in seconds.
        first: The first minute.
        last: The last minute.
    """

    line: str
    ceiling: float
    greatest: float
    greatest_at: float
    newest: float
    first: float
    last: float


def ages_of(past: Sequence[tuple[float, float]]) -> AgeChart | None:
    """Return the chart of ages, given minutes in seconds since the epoch and ages in seconds, oldest first.

    There is None of less than two minutes.
    """
    if len(past) < 2:
        return None
    first, last = past[0][0], past[-1][0]
    greatest_at, greatest = max(past, key=lambda one: one[1])
    ceiling = next((found for found in CEILINGS if found >= greatest), greatest)
    size = -(-round((last - first) / MINUTE_S + 1) // MAX_AGES)
    oldest: dict[int, float] = {}
    for at, seconds in past:
        place = round((at - first) / MINUTE_S) // size
        oldest[place] = max(seconds, oldest.get(place, 0.0))
    pieces, before = list[str](), -2
    width = max(1, *oldest)
    for place, seconds in oldest.items():
        x = round(LEFT + place / width * (WIDTH - LEFT - 8), 1)
        y = round(TOP + (1 - seconds / ceiling) * (HEIGHT - BOTTOM - TOP), 1)
        joined = place == before + 1
        pieces.append(f"{'L' if joined else 'M'}{x} {y}" + ("" if joined else "h1.5"))
        before = place
    return AgeChart(
        line="".join(pieces),
        ceiling=ceiling,
        greatest=greatest,
        greatest_at=greatest_at,
        newest=past[-1][1],
        first=first,
        last=last,
    )
