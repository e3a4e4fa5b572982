"""Wall times in time zones, their parts and the instants that they denote, and the lengths of units of time."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from caraway.dtypes.durations import US_PER_UNIT
from caraway.dtypes.instants import EPOCH, US
from caraway.errors import InvalidInputError
from caraway.expr.nodes import DatetimeLiteral, TimeUnit

EPOCH_WALL = EPOCH.replace(tzinfo=None)

# The units of fixed length: all units except the month. A year is 365 days here.
US_OF_UNIT = {
    TimeUnit.YEAR: US_PER_UNIT["y"],
    TimeUnit.WEEK: US_PER_UNIT["w"],
    TimeUnit.DAY: US_PER_UNIT["d"],
    TimeUnit.HOUR: US_PER_UNIT["h"],
    TimeUnit.MINUTE: US_PER_UNIT["m"],
    TimeUnit.SECOND: US_PER_UNIT["s"],
    TimeUnit.MILLISECOND: 1_000,
    TimeUnit.MICROSECOND: 1,
}

PARTS: Mapping[TimeUnit, Callable[[datetime], int]] = {
    TimeUnit.YEAR: lambda moment: moment.year,
    TimeUnit.MONTH: lambda moment: moment.month,
    TimeUnit.WEEK: lambda moment: moment.isocalendar().week,
    TimeUnit.DAY: lambda moment: moment.day,
    TimeUnit.HOUR: lambda moment: moment.hour,
    TimeUnit.MINUTE: lambda moment: moment.minute,
    TimeUnit.SECOND: lambda moment: moment.second,
    TimeUnit.MILLISECOND: lambda moment: moment.microsecond // 1_000,
    TimeUnit.MICROSECOND: lambda moment: moment.microsecond,
}


@lru_cache(maxsize=256)
def time_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name, legacy names included."""
    return ZoneInfo(name)


def local_instant(wall: datetime, zone: str) -> int:
    """Return the microseconds since the epoch at which clocks in a zone show `wall`, a datetime without a zone.

    Raises `InvalidInputError` if the clocks never show `wall`, or show it twice.
    """
    zoned = wall.replace(tzinfo=time_zone(zone))
    offset, other = zoned.utcoffset(), zoned.replace(fold=1).utcoffset()
    assert offset is not None  # noqa: S101 (a zone has one at all times)
    assert other is not None  # noqa: S101
    if offset < other:
        raise InvalidInputError(f"the local time {wall} does not exist in {zone}: clocks skip it")
    if offset > other:
        raise InvalidInputError(f"the local time {wall} is ambiguous in {zone}: clocks show it twice")
    return (wall - EPOCH_WALL - offset) // US


def literal_instant(node: DatetimeLiteral) -> int:
    """Return the microseconds since the epoch of a constant instant."""
    parts = (node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)
    return local_instant(datetime(*parts), node.timezone)  # noqa: DTZ001 (a wall time)
