"""The `dt` namespace in polars, and the nodes whose values are instants.

The parts of an instant are computed with polars's tables of time zones, which end with the year 2099; later parts, and
formatted text, with Python's tables. `from_epoch` returns null for an instant that doesn't fit 64 bits.
"""

from datetime import datetime, timedelta

import polars as pl

from caraway.dtypes.instants import EPOCH, US
from caraway.dtypes.types import DATETIME, INT, STRING
from caraway.dtypes.values import INT_MAX
from caraway.expr.functions.chrono_writing import writer
from caraway.expr.functions.local_time import PARTS, US_OF_UNIT, literal_instant, time_zone
from caraway.expr.nodes import DatePart, DatetimeLiteral, FromEpoch, Since, SinceEpoch, Strftime, TimeUnit
from caraway.expr.polars.scope import PolarsScope, compile_node
from caraway.expr.polars.series import by_row, of_columns
from caraway.expr.polars.values import INSTANT, to_polars

# The beginning of 2100, and the 400 years after which the calendar comes again, in microseconds.
LATE = (datetime(2100, 1, 1, tzinfo=EPOCH.tzinfo) - EPOCH) // US
CYCLE = 146_097 * US_OF_UNIT[TimeUnit.DAY]


@compile_node.register
def _(node: DatePart, scope: PolarsScope) -> pl.Expr:
    return date_part(scope.operand(node.operand, DATETIME), node.part, node.timezone)


def date_part(instant: pl.Expr, part: TimeUnit, timezone: str) -> pl.Expr:
    """Return a calendar part of instants in a time zone."""
    # The text of a unit, such as "year", is the name of the polars method that returns this part.
    found: pl.Expr = getattr(instant.dt.convert_time_zone(timezone).dt, part)().cast(pl.Int64)
    if timezone == "UTC":
        return found

    def corrected(columns: list[pl.Series]) -> pl.Series:
        us, parts = columns[0].cast(pl.Int64), columns[1]
        if not (us >= LATE).any():
            return parts
        pairs = zip(us, parts, strict=True)
        values = [early if at is None or at < LATE else late_part(at, part, timezone) for at, early in pairs]
        return to_polars("", values, INT)

    return of_columns(corrected, [instant, found], INT)


def late_part(us: int, part: TimeUnit, timezone: str) -> int:
    """Return a calendar part of an instant after 2099 in a time zone."""
    # The calendar and the last rules of the zones come again with each cycle, and Python's calendar ends with 9999.
    cycles, within = divmod(us - LATE, CYCLE)
    local = (EPOCH + timedelta(microseconds=LATE + within)).astimezone(time_zone(timezone))
    return PARTS[part](local) + (400 * cycles if part is TimeUnit.YEAR else 0)


@compile_node.register
def _(node: Since, scope: PolarsScope) -> pl.Expr:
    end, start = scope.operand(node.operand, DATETIME), scope.operand(node.start, DATETIME)
    return _whole_units(end.cast(pl.Int64) - start.cast(pl.Int64), node.unit)


@compile_node.register
def _(node: SinceEpoch, scope: PolarsScope) -> pl.Expr:
    return _whole_units(scope.operand(node.operand, DATETIME).cast(pl.Int64), node.unit)


def _whole_units(us: pl.Expr, unit: TimeUnit) -> pl.Expr:
    """Return how many whole units are in a number of microseconds, rounded toward zero."""
    length = US_OF_UNIT[unit]
    return pl.when(us >= 0).then(us // length).otherwise(-((-us) // length))


@compile_node.register
def _(node: Strftime, scope: PolarsScope) -> pl.Expr:
    instant = scope.operand(node.operand, DATETIME)
    return by_row(writer(node.format, node.timezone), [instant], [DATETIME], STRING)


@compile_node.register
def _(node: FromEpoch, scope: PolarsScope) -> pl.Expr:
    units, length = scope.operand(node.operand, INT), US_OF_UNIT[node.unit]
    most = INT_MAX // length
    return pl.when((units >= -most) & (units <= most)).then(units * length).cast(INSTANT)


@compile_node.register
def _(node: DatetimeLiteral, _scope: PolarsScope) -> pl.Expr:
    return pl.lit(literal_instant(node), dtype=pl.Int64).cast(INSTANT)


def part_of_instant(us: int, unit: TimeUnit) -> object:
    """Return a part of one instant, in UTC."""
    column = to_polars("t", [us], DATETIME).to_frame()
    return column.select(date_part(pl.col("t"), unit, "UTC"))["t"].to_list()[0]
