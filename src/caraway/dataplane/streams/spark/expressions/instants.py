"""The `dt` namespace and the nodes that make instants, without formats. Instants are longs of microseconds."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node, divided
from caraway.dataplane.streams.spark.java import active_jvm
from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.types import DATETIME, INT
from caraway.dtypes.values import INT_MAX
from caraway.errors import DefinitionError
from caraway.expr.functions.local_time import US_OF_UNIT, literal_instant
from caraway.expr.nodes import DatePart, DatetimeLiteral, FromEpoch, Since, SinceEpoch, TimeUnit

_CALENDAR_PARTS = {
    TimeUnit.YEAR: F.year,
    TimeUnit.MONTH: F.month,
    TimeUnit.WEEK: F.weekofyear,
    TimeUnit.DAY: F.dayofmonth,
    TimeUnit.HOUR: F.hour,
    TimeUnit.MINUTE: F.minute,
    TimeUnit.SECOND: F.second,
}

# Java treats these names as fixed offsets. In the time zone database they link to zones whose offsets have changed, so
# Java gets the names of those zones instead.
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
    return divided(end - start, US_OF_UNIT[node.unit])


@compile_node.register
def _(node: SinceEpoch, scope: SparkScope) -> Column:
    return divided(compile_as(node.operand, DATETIME, scope), US_OF_UNIT[node.unit])


@compile_node.register
def _(node: FromEpoch, scope: SparkScope) -> Column:
    units, length = compile_as(node.operand, INT, scope), US_OF_UNIT[node.unit]
    most = INT_MAX // length
    return F.when(units.between(-most, most), units * F.lit(length).cast("long"))


@compile_node.register
def _(node: DatetimeLiteral, scope: SparkScope) -> Column:  # noqa: ARG001 (the same signature for all)
    return F.lit(literal_instant(node)).cast("long")


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
    return F.pmod(micros, F.lit(US_PER_SECOND).cast("long"))
