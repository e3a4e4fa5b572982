"""Charts of pass rates, of figures such as ages and lags over time, and of spreads, as coordinates for SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from caraway.compute.profiles.columns import ColumnProfile

# The size of a chart in pixels, and the room for the labels of its axes.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 132, 56, 20, 8
# The most points of a chart. If there are more hours, several of them become one point, since points that are only a
# few pixels apart can't be distinguished.
MAX_POINTS = 120
# The pass rates at which the axis may begin. Most rates are close to 1, so on an axis from 0 they would look like a
# straight line.
FLOORS = (0.999, 0.99, 0.95, 0.9, 0.8, 0.5, 0.0)
HOUR = timedelta(hours=1)
# The width and height of the drawing of a line, which the page scales to its place, and the most points of the line.
# A point for several minutes has the greatest value of them.
LINE_WIDTH, LINE_HEIGHT, LINE_POINTS = 600, 100, 240
MINUTE_S = 60.0
# The number of bars that show the distribution of a column's numbers, and the share of the numbers at each end that
# lies outside of the range of the bars. The first and the last bar count these numbers, too.
BARS, ENDS = 30, 0.01


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
class Line:
    """A figure over time.

    Attributes:
        path: The path of the line, which is interrupted where there are no values.
        area: The path of what is below the line.
        ceiling: The value at the top.
        greatest: The greatest value.
        greatest_at: Its minute, in seconds since the epoch, as `first` and `last` are.
        newest: The value of the last minute.
        first: The first minute.
        last: The last minute.
    """

    path: str
    area: str
    ceiling: float
    greatest: float
    greatest_at: float
    newest: float
    first: float
    last: float


def line_of(past: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line of a figure, given minutes in seconds since the epoch and values from 0 on, oldest first.

    There is None of less than two minutes.
    """
    if len(past) < 2:
        return None
    first, last = past[0][0], past[-1][0]
    greatest_at, greatest = max(past, key=lambda one: one[1])
    ceiling = ceiling_of(greatest)
    size = -(-round((last - first) / MINUTE_S + 1) // LINE_POINTS)
    highest: dict[int, float] = {}
    for at, value in past:
        place = round((at - first) / MINUTE_S) // size
        highest[place] = max(value, highest.get(place, 0.0))
    width = max(1, *highest)
    pieces, areas, before, x = list[str](), list[str](), -2, 0.0
    for place, value in highest.items():
        joined = place == before + 1
        if not joined and areas:
            areas.append(f"V{LINE_HEIGHT}z")
        x, y = round(place / width * LINE_WIDTH, 1), round((1 - value / ceiling) * LINE_HEIGHT, 1)
        pieces.append(f"{'L' if joined else 'M'}{x} {y}" + ("" if joined else "h1.5"))
        areas.append(f"L{x} {y}" if joined else f"M{x} {LINE_HEIGHT}V{y}")
        before = place
    return Line(
        path="".join(pieces),
        area="".join([*areas, f"V{LINE_HEIGHT}z"]),
        ceiling=ceiling,
        greatest=greatest,
        greatest_at=greatest_at,
        newest=past[-1][1],
        first=first,
        last=last,
    )


def ceiling_of(value: float) -> float:
    """Return the least of the numbers 1, 2 and 5 times a power of ten that is a value or more; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= value), 10 * power)


def oldest_of(histories: Iterable[Iterable[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the greatest of several figures in each minute, oldest first."""
    found: dict[float, float] = {}
    for history in histories:
        for at, value in history:
            found[at] = max(value, found.get(at, value))
    return sorted(found.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How numbers are spread, as bars of equal width.

    Attributes:
        bars: The left end, the top and the height of each bar.
        width: The width of a bar.
        low: The number at the left end. The first bar has smaller ones, too.
        high: The number at the right end. The last bar has greater ones, too.
        most: The share of the numbers in the highest bar.
    """

    bars: Sequence[tuple[float, float, float]]
    width: float
    low: float
    high: float
    most: float


def spread_of(column: ColumnProfile) -> Spread | None:
    """Return how the numbers of a column are spread, about; None if they aren't numbers, or all are about the same."""
    low, high = column.quantile(ENDS), column.quantile(1 - ENDS)
    if low is None or high is None or not low < high or math.isinf(high - low):
        return None
    edges = sorted({low + (high - low) * number / BARS for number in range(1, BARS)})
    shares = [float(share) for share in column.quantiles.get_pmf(edges, inclusive=True)]
    most, width = max(shares), LINE_WIDTH / len(shares)
    heights = [round(share / most * LINE_HEIGHT, 1) for share in shares]
    bars = [(round(at * width, 1), round(LINE_HEIGHT - height, 1), height) for at, height in enumerate(heights)]
    return Spread(bars=bars, width=round(width - 2, 1), low=low, high=high, most=most)
