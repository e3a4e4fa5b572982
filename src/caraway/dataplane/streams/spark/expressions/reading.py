"""`strptime` in Spark's functions, with the pattern and the results of `caraway.expr.functions.chrono_reading`.

Each check is a column that is true or false where the text matches. The instant is null where a check is false.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.instants import local_timestamp
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node, let
from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.instants import US_PER_DAY
from caraway.dtypes.types import STRING
from caraway.expr.functions.chrono_reading import CENTURY_BREAK, MONTHS, WEEKDAYS, reading_pattern
from caraway.expr.nodes import Strptime

# The character that separates the groups of a match until they are split; no number, name or offset contains it.
_SEPARATOR = ","
_MINUTE_US = 60 * US_PER_SECOND


@dataclass(slots=True)
class _Fields:
    """The fields of a text, each a column that is null where the text leaves it out, and the checks of the text."""

    numbers: dict[str, Column] = field(default_factory=dict)
    checks: list[Column] = field(default_factory=list)

    def add(self, name: str, number: Column) -> None:
        """Add a field. A field that a text states twice must have the same value both times."""
        known = self.numbers.get(name)
        if known is not None:
            self.checks.append(F.coalesce(known == number, F.lit(True)))
            number = F.coalesce(known, number)
        self.numbers[name] = number

    def agrees(self, name: str, number: Column) -> None:
        """Require that a field, where the text states it, has this value."""
        if name in self.numbers:
            self.checks.append(self.numbers[name] == number)


@compile_node.register
def _(node: Strptime, scope: SparkScope) -> Column:
    pattern, names = reading_pattern(node.format)
    text = compile_as(node.operand, STRING, scope)
    whole = rf"\A(?:{pattern})\z"
    pieces = _SEPARATOR.join(f"${group}" for group in range(1, len(names) + 1))
    # A single match replaces the text by its groups, separated by `_SEPARATOR`, and `split` takes them apart.
    # `regexp_extract` would match the text again for each group.
    found = F.when(F.rlike(text, F.lit(whole)), F.split(F.regexp_replace(text, whole, pieces), _SEPARATOR, -1))
    return let(found, lambda groups: _instant(_read(names, groups), node.timezone))


def _read(names: Sequence[str], groups: Column) -> _Fields:
    fields = _Fields()
    for position, name in enumerate(names):
        fields.add(*_number(name, groups.getItem(position)))
    return fields


def _number(name: str, text: Column) -> tuple[str, Column]:
    """Return the name of the field that a group states, and its number."""
    match name:
        case "b":
            return "m", _position(MONTHS, text)
        case "a":
            return "a", _position(WEEKDAYS, text) - 1
        case "p":
            return "p", (F.lower(text) == "pm").cast("long")
        case "z":
            hours, minutes = F.substring(text, 2, 2).cast("long"), F.right(text, F.lit(2)).cast("long")
            sign = F.when(F.startswith(text, F.lit("-")), -1).otherwise(1)
            return "z", F.when(minutes < 60, (hours * 60 + minutes) * sign).otherwise(10_000)
        case "s":
            return "s", text.cast("decimal(38,0)")
        case "f":
            return "us", F.call_function("div", text.cast("long"), F.lit(1_000))
        case ".f" | ".3f" | ".6f" | ".9f" | "3f" | "6f" | "9f":
            digits = F.rpad(F.substring(text, 1, 6), 6, "0").cast("long")
            return "us", F.when(text != "", digits)
        case _:
            return name, text.cast("long")


def _position(names: tuple[str, ...], text: Column) -> Column:
    """Return the position of a name, from 1; its first three letters suffice."""
    short = F.array(*(F.lit(name[:3].lower()) for name in names))
    return F.array_position(short, F.lower(F.substring(text, 1, 3)))


def _instant(fields: _Fields, timezone: str) -> Column:
    micros = F.coalesce(fields.numbers["us"], F.lit(0)) if "us" in fields.numbers else F.lit(0)
    if "s" in fields.numbers:
        exact = fields.numbers["s"] * F.lit(US_PER_SECOND).cast("decimal(7,0)") + micros.cast("decimal(7,0)")
        fields.checks.append(exact.between(-(2**63), 2**63 - 1))
        return _checked(fields, exact.cast("long"))
    day = _day(fields)
    wall = F.unix_date(day).cast("long") * F.lit(US_PER_DAY).cast("long") + _time_of_day(fields) + micros
    if "z" not in fields.numbers:
        return let(_checked(fields, wall), lambda checked: _of_wall(checked, timezone))
    fields.checks.append(F.abs(fields.numbers["z"]) < 24 * 60)
    return _checked(fields, wall - fields.numbers["z"] * F.lit(_MINUTE_US).cast("long"))


def _checked(fields: _Fields, instant: Column) -> Column:
    return F.when(reduce(lambda a, b: a & b, fields.checks, F.lit(True)), instant)


def _day(fields: _Fields) -> Column:
    """Return the day; null for a day that isn't in the calendar."""
    numbers = fields.numbers
    year = numbers.get("Y")
    if "y" in numbers:
        short = numbers["y"]
        if year is None:
            year = short + F.when(short < CENTURY_BREAK, 2000).otherwise(1900)
        else:
            fields.checks.append(year % 100 == short)
    assert year is not None  # noqa: S101 (the format was checked)
    fields.checks.append(year.between(1, 9999))
    one = F.lit(1)
    if "j" in numbers:
        day = F.date_add(F.make_date(year.cast("int"), one, one), (numbers["j"] - 1).cast("int"))
        fields.checks.append(F.year(day) == year)
        fields.agrees("m", F.month(day))
        fields.agrees("d", F.dayofmonth(day))
    else:
        day = F.make_date(year.cast("int"), numbers.get("m", one).cast("int"), numbers.get("d", one).cast("int"))
    fields.agrees("a", F.weekday(day))
    return day


def _time_of_day(fields: _Fields) -> Column:
    """Return the microseconds since midnight, without fractions of a second."""
    numbers, checks = fields.numbers, fields.checks
    zero = F.lit(0).cast("long")
    hour = numbers.get("H", zero)
    if "I" in numbers:
        checks.append(numbers["I"].between(1, 12))
        half = numbers["I"] % 12 + 12 * numbers["p"]
        fields.agrees("H", half)
        hour = half
    elif "H" in numbers and "p" in numbers:
        checks.append(F.call_function("div", hour, F.lit(12)) == numbers["p"])
    minute, second = numbers.get("M", zero), numbers.get("S", zero)
    checks.append((hour < 24) & (minute < 60) & (second < 60))
    return (hour * 3_600 + minute * 60 + second) * F.lit(US_PER_SECOND).cast("long")


def _of_wall(wall: Column, timezone: str) -> Column:
    """Return the only instant at which clocks in a zone show `wall`; null if there is none, or if there are two.

    The offset at that instant is that of a day before or of a day after: no zone changes twice in two days.
    """
    if timezone == "UTC":
        return wall

    def shown(micros: Column) -> Column:
        return F.unix_micros(local_timestamp(micros, timezone))

    def candidate(probe: Column) -> Column:
        instant = wall - (shown(probe) - probe)
        return F.when(shown(instant) == wall, instant)

    before, after = candidate(wall - US_PER_DAY), candidate(wall + US_PER_DAY)
    return F.when(before.isNull() | after.isNull() | (before == after), F.coalesce(before, after))
