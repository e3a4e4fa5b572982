"""Wall times in time zones, and the instants that they denote."""

from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from caraway.dtypes.instants import EPOCH, US
from caraway.errors import InvalidInputError

EPOCH_WALL = EPOCH.replace(tzinfo=None)


@lru_cache(maxsize=256)
def time_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name, legacy names included."""
    return ZoneInfo(name)


def local_instant(wall: datetime, zone: str) -> int:
    """Return the microseconds since the epoch at which clocks in a zone show `wall`, which has no zone of its own.

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
