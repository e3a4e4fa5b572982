"""The `dt` namespace and the nodes that make instants, without formats. Instants are longs of microseconds."""

from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dtypes.types import DATETIME, INT
from caraway.dtypes.values import INT_MAX
from caraway.errors import DefinitionError
from caraway.expr.functions.local_time import local_instant
from caraway.expr.nodes import DatePart, DatetimeLiteral, FromEpoch, Since, SinceEpoch, TimeUnit
from caraway.spark.expressions.scope import SparkScope, compile_as, compile_node, divided
from caraway.spark.java import active_jvm

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
_UNIT_US = {
    # A year is 365 days by definition, wherever it begins.
    TimeUnit.YEAR: 365 * DAY_US,
    TimeUnit.WEEK: 7 * DAY_US,
    TimeUnit.DAY: DAY_US,
    TimeUnit.HOUR: 3_600 * SECOND_US,
    TimeUnit.MINUTE: 60 * SECOND_US,
    TimeUnit.SECOND: SECOND_US,
    TimeUnit.MILLISECOND: 1_000,
    TimeUnit.MICROSECOND: 1,
}
_CALENDAR_PARTS = {
    TimeUnit.YEAR: F.year,
    TimeUnit.MONTH: F.month,
    TimeUnit.WEEK: F.weekofyear,
    TimeUnit.DAY: F.dayofmonth,
    TimeUnit.HOUR: F.hour,
    TimeUnit.MINUTE: F.minute,
    TimeUnit.SECOND: F.second,
}

# Java takes these names for fixed offsets, but in the time zone database they link to zones with a history.
_LINKS = {"EST": "America/Panama", "MST": "America/Phoenix", "HST": "Pacific/Honolulu"}


@compile_node.register
def _(node: DatePart, scope: SparkScope) -> Column:
    micros = compile_as(node.operand, DATETIME, scope)
    match node.part:
        case TimeUnit.MICROSECOND:
            return within_second(micros)
        case TimeUnit.MILLISECOND:
            return divided(within_second(micros), 1_000)
        case part:
            return _CALENDAR_PARTS[part](local_timestamp(micros, node.timezone)).cast("long")


@compile_node.register
def _(node: Since, scope: SparkScope) -> Column:
    end, start = compile_as(node.operand, DATETIME, scope), compile_as(node.start, DATETIME, scope)
    return divided(end - start, _UNIT_US[node.unit])


@compile_node.register
def _(node: SinceEpoch, scope: SparkScope) -> Column:
    return divided(compile_as(node.operand, DATETIME, scope), _UNIT_US[node.unit])


@compile_node.register
def _(node: FromEpoch, scope: SparkScope) -> Column:
    units, length = compile_as(node.operand, INT, scope), _UNIT_US[node.unit]
    most = INT_MAX // length
    return F.when(units.between(-most, most), units * F.lit(length).cast("long"))


@compile_node.register
def _(node: DatetimeLiteral, scope: SparkScope) -> Column:  # noqa: ARG001 (the same signature for all)
    parts = (node.year, node.month, node.day, node.hour, node.minute, node.second, node.microsecond)
    wall = datetime(*parts)  # noqa: DTZ001 (a wall time)
    return F.lit(local_instant(wall, node.timezone)).cast("long")


def local_timestamp(micros: Column, timezone: str) -> Column:
    """Return the wall time in a zone, as a Spark timestamp (the session is in UTC).

    Raises `DefinitionError` if Java doesn't know the zone.
    """
    moment = F.timestamp_micros(micros)
    if timezone == "UTC":
        return moment
    zone = _LINKS.get(timezone, timezone)
    if not active_jvm().java.time.ZoneId.getAvailableZoneIds().contains(zone):
        raise DefinitionError(f"Java doesn't know the time zone {timezone}: update the JDK, or use another zone")
    return F.from_utc_timestamp(moment, zone)


def within_second(micros: Column) -> Column:
    """Return the microseconds since the last whole second."""
    return F.pmod(micros, F.lit(SECOND_US).cast("long"))
