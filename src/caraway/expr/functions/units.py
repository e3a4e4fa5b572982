"""The lengths of units of time; nothing here needs polars."""

from caraway.dtypes.durations import US_PER_UNIT
from caraway.expr.nodes import TimeUnit

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
