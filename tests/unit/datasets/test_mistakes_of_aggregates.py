"""Tests of mistakes in aggregates and their windows: their exceptions, and the facts in the messages."""

# The tests pass wrong arguments.
# mypy: disable-error-code="arg-type, attr-defined, misc, operator, call-arg"
from collections.abc import Callable
from datetime import date
from decimal import Decimal as Number
from typing import Any

import pytest

from caraway.datasets import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    Variance,
)
from caraway.dtypes import Hopping, Session, Tumbling
from tests.unit.datasets.shop import HOUR, Orders, Users, Visits
from tests.unit.refusals import ROW, check, mistakes_of

mistake = mistakes_of("datasets")

DAY = Tumbling("1d")


def over(on: Any, *args: Any, by: str = "user", window: Any = None, **options: Any) -> Callable[[], Any]:
    return lambda: on.groupby(by, window=window).aggregate(*args, **options)


def column(aggregate: Callable[..., Any], of: str, on: Any = Visits, **options: Any) -> Callable[[], Any]:
    return lambda: on.groupby("user").aggregate(x=aggregate(of=of, window=HOUR, **options))


@pytest.mark.parametrize(
    ROW,
    [
        # 7.12
        mistake(over(Orders), TypeError, "aggregate|at least one", "7.12:1"),
        mistake(over(Orders, []), ValueError, "aggregate|at least one", "7.12:1"),
        mistake(lambda: Orders.groupby(window=DAY).aggregate(), ValueError, "groupby", "7.12:2"),
        mistake(lambda: Orders.groupby().aggregate(n=Count(window=HOUR)), ValueError, "groupby", "7.12:2"),
        mistake(over(Orders, x=3), ValueError, "column x|int 3", "7.12:3"),
        mistake(over(Orders, Count), ValueError, "an argument|Count", "7.12:3"),
        mistake(over(Orders, Count(window=HOUR)), ValueError, "Count|into_field", "7.12:4"),
        mistake(over(Orders, emit=Count(window=HOUR)), ValueError, "emit is reserved", "7.12:5"),
        mistake(over(Orders, along=Count(window=HOUR)), ValueError, "along is reserved", "7.12:5"),
        mistake(over(Orders, n=Count(window=HOUR), emit="x"), ValueError, '\'x\'|"eager" or "final"', "7.12:6"),
        mistake(over(Orders, closes=Count(window=HOUR)), ValueError, "closes is reserved"),
        mistake(over(Orders, n=Count(window=DAY), closes="x"), ValueError, '\'x\'|"event_time" or "processing_time"'),
        mistake(
            over(Orders, n=Count(window=HOUR), closes="processing_time"), ValueError, 'Tumbling|Continuous("1h") never'
        ),
        mistake(
            over(Orders, n=Count(), window=Session("1h"), closes="processing_time"), ValueError, 'Session("1h") never'
        ),
        mistake(over(Visits, n=Count(window=HOUR), along=3), ValueError, "along|int 3", "7.12:7"),
        mistake(over(Visits, n=Count(window=HOUR), along="gone"), ValueError, "gone|due", "7.12:7"),
        mistake(over(Visits, n=Count(window=HOUR), along="at"), ValueError, "names at|due", "7.12:7"),
        mistake(over(Visits, n=Count(window=HOUR), along="good"), ValueError, "good, which is bool", "7.12:7"),
        mistake(
            over(Visits, n=Count(window=HOUR), along="seen"), ValueError, "seen, which is Optional[datetime]", "7.12:7"
        ),
        mistake(over(Visits, n=Count(), window=DAY, along="due"), ValueError, "along=due", "7.12:8"),
        mistake(over(Visits, n=Count(window=HOUR), along="due", emit="final"), ValueError, "along=due|final", "7.12:8"),
        mistake(
            over(Orders, a=Count(window=HOUR), b=Count(window=DAY)),
            ValueError,
            "a over continuous|b over discrete",
            "7.12:9",
        ),
        mistake(
            over(Orders, n=Count(window=Tumbling("1h")), window=DAY),
            ValueError,
            'Tumbling("1h")|Tumbling("1d")',
            "7.12:10",
        ),
        mistake(over(Orders, n=Count(window=HOUR), window=Session("1h")), ValueError, "Session|Continuous"),
        *(
            mistake(
                over(Orders, a=Count(window=Tumbling("1d", first)), b=Count(window=Hopping("2d", "1d", second))),
                ValueError,
                "lookbacks|0s|1h",
                "7.12:11",
            )
            for first, second in [("1h", "0s"), ("0s", "1h")]
        ),
        mistake(over(Users, n=Count(), by="town", window=DAY), ValueError, "keyed by user", "7.12:12"),
        *(
            mistake(
                over(Users, n=Count(window=window), by="town"), ValueError, "keyed by user|forever|along", "7.12:13"
            )
            for window in (DAY, Hopping("2d", "1d"))
        ),
        mistake(over(Orders, n=Count()), ValueError, "n has no window", "7.12:14"),
        mistake(over(Orders, x=Sum(of="gone", window=HOUR)), Exception, "Sum|gone", "7.12:15"),
        *(
            mistake(over(Orders, x=aggregate(of="gone", window=HOUR, **more)), Exception, "gone", "7.12:15")
            for aggregate, more in (
                (Min, {"default": 1}),
                (Average, {}),
                (LastK, {"limit": 1, "dedup": False}),
                (Distinct, {"unordered": True}),
                (ExpDecaySum, {"half_life": "1d"}),
                (Count, {"unique": True, "approx": True}),
            )
        ),
        mistake(
            over(Orders, Count(window=HOUR, into_field="n"), n=Count(window=HOUR)),
            ValueError,
            "n stands twice",
            "7.12:16",
        ),
        mistake(over(Orders, user=Count(window=HOUR)), ValueError, "user|a key", "7.12:16"),
        mistake(over(Orders, at=Count(window=HOUR)), ValueError, "at|the timestamp", "7.12:16"),
        mistake(over(Orders, window=Count(), by="user"), TypeError, "groupby|Count"),
        mistake(over(Orders, Count(into_field="window"), window=DAY), ValueError, "window|a key", "7.12:16"),
        mistake(
            lambda: Orders.rename({"shop": "window"}).groupby("window", window=DAY).aggregate(),
            ValueError,
            "window|rename",
        ),
        mistake(
            over(Orders, x=ExpDecaySum(of="price", half_life="1h", window=HOUR), emit="final"),
            ValueError,
            "x is an ExpDecaySum|final",
        ),
    ],
)
def test_calls_of_aggregate_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)


LAST = {"limit": 2, "dedup": False}


@pytest.mark.parametrize(
    ROW,
    [
        # 8: the window of an aggregate
        mistake(lambda: Count(window="1h"), ValueError, "Count|'1h'|Continuous"),
        mistake(lambda: Count(window=Session("1h")), ValueError, "Count|Session|Continuous"),
        mistake(lambda: Sum(of="price", window=3600), ValueError, "Sum|price|3600"),
        mistake(over(Orders, n=Count(window=Tumbling("0.5s"))), ValueError, "Tumbling|0.5s|whole seconds"),
        # 9: parameters
        mistake(lambda: Sum(), ValueError, "Sum|of is missing", "9:2"),
        mistake(lambda: Average(window=HOUR), ValueError, "Average|of is missing", "9:3"),
        mistake(lambda: Max(default=1), ValueError, "Max|of is missing", "9:4"),
        mistake(lambda: Stddev(), ValueError, "Stddev|of is missing", "9:5"),
        mistake(lambda: Quantile(of="x", approx=True), ValueError, "Quantile|p is missing", "9:6"),
        mistake(lambda: Distinct(of="x"), ValueError, "Distinct|unordered is missing", "9:7"),
        mistake(lambda: LastK(of="x", limit=1), ValueError, "LastK|dedup is missing", "9:8"),
        mistake(lambda: FirstK(of="x", limit=1, dedup=False), ValueError, "FirstK|dropnull is missing", "9:9"),
        mistake(lambda: ExpDecaySum(of="x"), ValueError, "ExpDecaySum|half_life is missing", "9:10"),
        mistake(lambda: Count(distinct=True), ValueError, "Count|unknown parameter distinct", "9:1"),
        mistake(lambda: Sum("price"), ValueError, "Sum|by name|price"),
        mistake(lambda: Sum(of=3), ValueError, "Sum|of is the name|3"),
        mistake(lambda: Sum(of=""), ValueError, "Sum|of is the name"),
        mistake(lambda: Sum(of="x", into_field=3), ValueError, "Sum|into_field|3"),
        # 9.1
        mistake(lambda: Count(of="x", unique=True), ValueError, "Count|approx=True", "9:1"),
        mistake(lambda: Count(unique=True, approx=True), ValueError, "Count|of=", "9:1"),
        mistake(lambda: Count(dropnull=True), ValueError, "Count|of=", "9:1"),
        mistake(column(Count, "user", dropnull=True), ValueError, "Count|user is int", "9:1"),
        *(
            mistake(column(Count, of, unique=True, approx=True), TypeError, f"Count|{of}", "9:1")
            for of in ("ratio", "due", "picture", "vector", "place")
        ),
        *(
            mistake(column(Sum, of), TypeError, f"x = Sum|{of}|int, float, Decimal", "9:2")
            for of in ("zip", "good", "due", "tags", "counts", "place", "vector", "picture")
        ),
        mistake(column(Sum, "day", Orders), TypeError, "Sum|day is date", "9:2"),
        mistake(column(Average, "day", Orders), TypeError, "Average|day is date", "9:3"),
        mistake(column(Average, "price", Orders, default="a"), TypeError, "x = Average(of=price)|'a'", "9:3"),
        mistake(column(Average, "price", Orders, default=True), TypeError, "Average|True", "9:3"),
        # A column of floats can't hold NaN, which is null, nor such a large int.
        *(
            mistake(
                column(aggregate, "price", Orders, default=default, **given),
                TypeError,
                f"x = {aggregate.__name__}(of=price)|fits a float|{named}",
            )
            for aggregate, given in (
                (Average, {}),
                (Stddev, {}),
                (Variance, {}),
                (Quantile, {"p": 0.5, "approx": True}),
            )
            for default, named in ((float("nan"), "nan"), (Number("snan"), "sNaN"), (10**400, "a number of 1,329 bits"))
        ),
        mistake(column(Min, "shop", Orders), TypeError, "Min|shop is Optional[str]", "9:4"),
        mistake(column(Max, "good"), TypeError, "Max|good is bool", "9:4"),
        mistake(column(Min, "count", Orders, default=0.5), TypeError, "Min|0.5|count", "9:4"),
        mistake(column(Min, "day", Orders, default=1), TypeError, "Min|day|date", "9:4"),
        mistake(column(Max, "due", default=date(2024, 1, 1)), TypeError, "Max|due|datetime", "9:4"),
        mistake(column(Max, "price", Orders, default="a"), TypeError, "Max|price", "9:4"),
        mistake(column(Stddev, "due"), TypeError, "Stddev|due is datetime", "9:5"),
        mistake(column(Stddev, "price", Orders, default="a"), TypeError, "Stddev|'a'", "9:5"),
        mistake(column(Variance, "due"), TypeError, "Variance|due is datetime", "9:5"),
        mistake(lambda: Quantile(of="x", p=0.5), ValueError, "Quantile|approx=True", "9:6"),
        *(
            mistake(lambda p=p: Quantile(of="x", p=p, approx=True), ValueError, f"p is|{p!r}", "9:6")
            for p in (-0.1, 1.5, float("nan"), "a", True)
        ),
        mistake(column(Quantile, "zip", p=0.5, approx=True), TypeError, "Quantile|zip", "9:6"),
        mistake(lambda: Distinct(of="x", unordered=False), ValueError, "Distinct|unordered", "9:7"),
        mistake(column(Distinct, "user", unordered=True, dropnull=True), ValueError, "user is int", "9:7"),
        *(
            mistake(column(Distinct, of, unordered=True), TypeError, f"Distinct|{of}", "9:7")
            for of in ("ratio", "due", "seen", "picture", "vector", "place")
        ),
        mistake(column(Distinct, "day", Orders, unordered=True), TypeError, "Distinct|date", "9:7"),
        mistake(column(LastK, "user", dropnull=True, **LAST), ValueError, "LastK|user is int", "9:8"),
        mistake(lambda: LastK(of="x", limit=0, dedup=False), ValueError, "limit|0", "9:8"),
        mistake(lambda: LastK(of="x", limit=1.5, dedup=False), ValueError, "limit|1.5", "9:8"),
        mistake(lambda: FirstK(of="x", limit=-1, dedup=False, dropnull=False), ValueError, "limit|-1", "9:9"),
        mistake(column(FirstK, "user", dropnull=True, **LAST), TypeError, "FirstK|user is int", "9:9"),
        *(
            mistake(lambda given=given: ExpDecaySum(of="x", half_life=given), ValueError, "half_life", "9:10")
            for given in ("0s", "soon", "5", 5, None)
        ),
        mistake(column(ExpDecaySum, "due", half_life="1d"), TypeError, "ExpDecaySum|due", "9:10"),
    ],
)
def test_aggregates_that_are_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    check(call, error, facts)
