"""`strftime` in Spark's functions, with the results of `caraway.expr.functions.chrono_writing`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.instants import local_timestamp, within_second
from caraway.dataplane.streams.spark.expressions.python import evaluated
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node, divided, let
from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.types import DATETIME
from caraway.expr.engines import python_reason
from caraway.expr.functions.chrono_format import Field, Item, Text, parse_format
from caraway.expr.functions.chrono_reading import MONTHS, WEEKDAYS
from caraway.expr.nodes import Strftime

# The first and the last microsecond of the years 1 to 9999. Python's dates, and so those of the expression language,
# have only these years.
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999

_MINUTE_US = 60 * US_PER_SECOND


@dataclass(frozen=True, slots=True)
class _Moment:
    """An instant, and the local time at it."""

    micros: Column
    local: Column

    @property
    def offset(self) -> Column:
        return F.unix_micros(self.local) - self.micros


def _half_day(moment: _Moment) -> Column:
    return (F.hour(moment.local) + 11) % 12 + 1


def _day_of_week(moment: _Moment) -> Column:
    """Return the day of the week; Monday is 0."""
    return F.weekday(moment.local)


def _week(moment: _Moment, day: Column) -> Column:
    return divided(F.dayofyear(moment.local) + 6 - day, 7)


def _iso_year(moment: _Moment) -> Column:
    return F.date_part(F.lit("YEAROFWEEK"), moment.local)


# The width, the padding and the value of each number, by its letter in a format.
_NUMBERS: Mapping[str, tuple[int, str, Callable[[_Moment], Column]]] = {
    "Y": (4, "0", lambda t: F.year(t.local)),
    "C": (2, "0", lambda t: divided(F.year(t.local), 100)),
    "y": (2, "0", lambda t: F.year(t.local) % 100),
    "m": (2, "0", lambda t: F.month(t.local)),
    "d": (2, "0", lambda t: F.dayofmonth(t.local)),
    "e": (2, " ", lambda t: F.dayofmonth(t.local)),
    "j": (3, "0", lambda t: F.dayofyear(t.local)),
    "H": (2, "0", lambda t: F.hour(t.local)),
    "k": (2, " ", lambda t: F.hour(t.local)),
    "I": (2, "0", _half_day),
    "l": (2, " ", _half_day),
    "M": (2, "0", lambda t: F.minute(t.local)),
    "S": (2, "0", lambda t: F.second(t.local)),
    "u": (1, "0", lambda t: _day_of_week(t) + 1),
    "w": (1, "0", lambda t: (_day_of_week(t) + 1) % 7),
    "U": (2, "0", lambda t: _week(t, (_day_of_week(t) + 1) % 7)),
    "W": (2, "0", lambda t: _week(t, _day_of_week(t))),
    "V": (2, "0", lambda t: F.weekofyear(t.local)),
    "G": (4, "0", _iso_year),
    "g": (2, "0", lambda t: _iso_year(t) % 100),
}
_PADDING = {"-": "", "_": " ", "0": "0"}
# The number of digits of the fraction that each item of a format writes.
_DIGITS = {"f": 9, "3f": 3, "6f": 6, "9f": 9, ".3f": 3, ".6f": 6, ".9f": 9}


@compile_node.register
def _(node: Strftime, scope: SparkScope) -> Column:
    if python_reason(node) is not None:
        return evaluated(node, scope)
    instant = compile_as(node.operand, DATETIME, scope)
    return let(instant, lambda micros: _written(micros, node.format, node.timezone))


def _written(micros: Column, format: str, timezone: str) -> Column:  # noqa: A002 (the name that users know)
    def text(local: Column) -> Column:
        moment = _Moment(micros, local)
        return F.concat(F.lit(""), *(_part(item, moment) for item in parse_format(format)))

    return F.when(in_calendar(micros, timezone), let(local_timestamp(micros, timezone), text))


def in_calendar(micros: Column, timezone: str) -> Column:
    """Return whether an instant lies in the years 1 to 9999, both in UTC and in a zone."""
    return in_range(micros) & in_range(F.unix_micros(local_timestamp(micros, timezone)))


def in_range(micros: Column) -> Column:
    """Return whether microseconds lie in the years 1 to 9999 of UTC."""
    return micros.between(FIRST_US, LAST_US)


def _part(item: Item, moment: _Moment) -> Column:
    if isinstance(item, Text):
        return F.lit(item.text)
    if item.directive in _NUMBERS:
        return _number(item, moment)
    match item.directive:
        case "s":
            return divided(moment.micros - within_second(moment.micros), US_PER_SECOND).cast("string")
        case ".f":
            return _shortest_fraction(moment)
        case "b" | "B":
            return _name(MONTHS, F.month(moment.local) - 1, short=item.directive == "b")
        case "a" | "A":
            return _name(WEEKDAYS, _day_of_week(moment), short=item.directive == "a")
        case "p" | "P":
            names = ("PM", "AM") if item.directive == "p" else ("pm", "am")
            return F.when(F.hour(moment.local) >= 12, names[0]).otherwise(names[1])
        case "z":
            return _offset(moment, "")
        case ":z":
            return _offset(moment, ":")
        case "Z":
            return F.lit("UTC")
        case directive:
            dot = "." if directive.startswith(".") else ""
            digits = F.lpad(within_second(moment.micros).cast("string"), 6, "0")
            return F.concat(F.lit(dot), F.substring(F.concat(digits, F.lit("000")), 1, _DIGITS[directive]))


def _number(item: Field, moment: _Moment) -> Column:
    width, padding, number = _NUMBERS[item.directive]
    fill = _PADDING.get(item.pad, padding)
    text = number(moment).cast("string")
    return F.lpad(text, width, fill) if fill else text


def _shortest_fraction(moment: _Moment) -> Column:
    micros = within_second(moment.micros)
    six = F.lpad(micros.cast("string"), 6, "0")
    three = F.substring(six, 1, 3)
    return (
        F.when(micros == 0, "")
        .when(micros % 1_000 == 0, F.concat(F.lit("."), three))
        .otherwise(F.concat(F.lit("."), six))
    )


def _name(names: tuple[str, ...], index: Column, *, short: bool) -> Column:
    return F.get(F.array(*(F.lit(name[:3] if short else name) for name in names)), index)


def _offset(moment: _Moment, colon: str) -> Column:
    # Offsets are rounded to minutes, and half a minute is rounded up.
    size = divided(F.abs(moment.offset) + 30 * US_PER_SECOND, _MINUTE_US)
    sign = F.when(moment.offset < 0, "-").otherwise("+")
    hours, rest = (F.lpad(part.cast("string"), 2, "0") for part in (divided(size, 60), size % 60))
    return F.concat(sign, hours, F.lit(colon), rest)
