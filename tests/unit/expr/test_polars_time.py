from datetime import UTC, datetime
from typing import Any, Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.expr import Expr, col, from_epoch, lit
from caraway.expr import datetime as moment
from tests.unit.expr.polars_results import constant, results

# The last day of an ISO year that is longer than its calendar year's weeks: Friday of week 53.
T = datetime(2021, 1, 1, 2, 3, 4, 567_891, tzinfo=UTC)
AT = lit(T, datetime)
SECOND = 1_000_000


def us(t: datetime) -> int:
    return (t - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)


def rule(row: str, expr: Expr, expected: Any) -> Any:
    return pytest.param(expr, expected, id=f"{row}: {expr}", marks=pytest.mark.spec(f"types:12.3:{row}"))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        rule("1", AT.dt.with_tz("Asia/Tokyo").hour, 11),
        rule("1", AT.dt.with_tz("US/Eastern").year, 2020),
        rule("1", AT.dt.with_tz("EST").hour, 21),
        rule("1", AT.dt.with_tz(None).hour, 2),
        rule("1", AT.dt.with_tz("Asia/Kathmandu").strftime("%H:%M %z"), "07:48 +0545"),
        rule("2", AT.dt.year, 2021),
        rule("2", AT.dt.month, 1),
        rule("2", AT.dt.day, 1),
        rule("2", AT.dt.hour, 2),
        rule("2", AT.dt.minute, 3),
        rule("2", AT.dt.second, 4),
        rule("3", AT.dt.week, 53),
        rule("4", AT.dt.millisecond, 567),
        rule("5", AT.dt.microsecond, 567_891),
        rule("6", AT.dt.parts("hour", "Asia/Tokyo"), 11),
        rule("6", AT.dt.with_tz("Asia/Tokyo").parts("hour"), 2),
        rule("7", AT.dt.since(moment(2020, 12, 31), "day"), 1),
        rule("7", AT.dt.since(moment(2020, 12, 31)), 86_400 + 7_384),
        rule("7", moment(2020, 12, 31).dt.since(AT, "day"), -1),
        rule("7", moment(2020, 12, 31).dt.since(AT, "hour"), -26),
        # A constant in another zone is an instant like any other.
        rule("7", AT.dt.since(moment(2020, 12, 31, 20, timezone="America/New_York"), "hour"), 1),
        rule("8", moment(2020, 12, 31).dt.since_epoch("year"), 51),
        rule("8", moment(1970, 1, 15).dt.since_epoch("week"), 2),
        rule("8", moment(1969, 12, 31, 12).dt.since_epoch("day"), 0),
        rule("8", moment(1968, 1, 1).dt.since_epoch("year"), -2),
        rule("8", moment(1969, 12, 31, 23, 59, 59, 1).dt.since_epoch("millisecond"), -999),
        rule("9", AT.dt.strftime("%F %T %z %Z"), "2021-01-01 02:03:04 +0000 UTC"),
        rule("9", AT.dt.strftime("%f|%6f|%.f|%.3f|%s"), "567891000|567891|.567891|.567|1609466584"),
        rule("9", moment(2021, 1, 1).dt.strftime("%S%.f"), "00"),
    ],
)
def test_instants_as_the_spec_names_them(expr: Expr, expected: Any) -> None:
    assert constant(expr) == expected


@pytest.mark.spec("types:11:10")
def test_instants_by_units_after_the_epoch() -> None:
    schema = {"i": Optional[int]}
    rows = [(-1,), (None,), (2**63 - 1,)]
    assert results(from_epoch(col("i")), schema, *rows) == [-SECOND, None, None]
    assert results(from_epoch(col("i"), "millisecond"), schema, *rows) == [-1000, None, None]
    assert results(from_epoch(col("i"), "microsecond"), schema, *rows) == [-1, None, 2**63 - 1]


@pytest.mark.spec("types:11:11")
def test_a_constant_instant_by_its_parts() -> None:
    assert constant(moment(2021, 1, 1, 2, 3, 4, 567_891)) == us(T)
    assert constant(moment(2021, 7, 1, 12, timezone="America/New_York")) == us(datetime(2021, 7, 1, 16, tzinfo=UTC))
    assert constant(moment(2021, 1, 1, timezone=None)) == us(datetime(2021, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "expr",
    [
        col("t").dt.year,
        col("t").dt.with_tz("Asia/Tokyo").week,
        col("t").dt.since(AT),
        AT.dt.since(col("t")),
        col("t").dt.since_epoch(),
        col("t").dt.strftime("%F"),
    ],
    ids=str,
)
def test_null_gives_null(expr: Expr) -> None:
    assert results(expr, {"t": Optional[datetime]}, (None,), (0,))[0] is None


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kathmandu", "Africa/Casablanca"]
MOMENTS = st.datetimes(datetime(1700, 1, 1), datetime(2700, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (hypothesis)


@given(st.lists(MOMENTS, min_size=1), st.sampled_from(ZONES))
@example([datetime(2128, 8, 9, 17, 14, tzinfo=UTC)], "Europe/Berlin")
@example([datetime(2099, 12, 31, 23, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)], "Europe/Berlin")
def test_the_parts_of_an_instant_are_those_of_its_text(moments: list[datetime], zone: str) -> None:
    at = col("t").dt.with_tz(zone)
    rows = [(us(t),) for t in moments]
    text = results(at.strftime("%Y %m %V %d %H %M %S"), {"t": datetime}, *rows)
    parts = [results(part, {"t": datetime}, *rows) for part in (at.year, at.month, at.week, at.day, at.hour, at.minute)]
    seconds = results(at.second, {"t": datetime}, *rows)
    assert [list(map(int, line.split())) for line in text] == [list(row) for row in zip(*parts, seconds, strict=True)]


def test_parts_beyond_the_years_that_have_text() -> None:
    """The calendar, and with it daylight saving, comes again every 400 years."""
    cycle = 146_097 * 86_400 * SECOND
    at, rows = (
        col("t").dt.with_tz("Europe/Berlin"),
        [(us(datetime(2128, 8, 9, 23, 14, tzinfo=UTC)) + cycle * 20,), (None,)],
    )
    schema = {"t": Optional[datetime]}
    found = [results(part, schema, *rows) for part in (at.year, at.month, at.week, at.day, at.hour, at.microsecond)]
    assert [value for value, _ in found] == [2128 + 400 * 20, 8, 33, 10, 1, 0]
    assert {null for _, null in found} == {None}
    assert results(at.year, schema, (2**63 - 1,)) == [294_247]
