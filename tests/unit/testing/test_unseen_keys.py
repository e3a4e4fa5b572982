"""A key that was never seen and one that is null have the same features."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, list-item, assignment, type-arg, valid-type"

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import List, Optional

import pandas as pd
import pytest

from caraway import F, dataset, featureset, field, pipeline
from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, LastK, Max, Min, Stddev, Sum
from caraway.dtypes import Continuous, Decimal
from caraway.lib import inputs
from tests.unit.testing.shop import committed

__owner__ = "tests@example.com"

hook = Webhook(name="unseen")
EVER = Continuous("forever")
NEVER = datetime(1990, 1, 1, tzinfo=UTC)
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@source(hook.endpoint("events"), disorder="1d", cdc="append")
@dataset
class Events:
    key: int
    value: int
    day: date
    price: Decimal[2]
    when: datetime
    at: datetime = field(timestamp=True)


@dataset(index=True)
class Totals:
    key: int = field(key=True)
    count: int
    total: int
    newest: List[int]
    mean: float
    most: int
    day: date
    price: Decimal[2]
    when: datetime
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Events)
    def aggregate(cls, events):
        return events.groupby("key").aggregate(
            count=Count(window=EVER),
            total=Sum(of="value", window=EVER),
            newest=LastK(of="value", limit=2, dedup=False, window=EVER),
            mean=Average(of="value", window=EVER, default=-1.0),
            most=Max(of="value", window=EVER, default=-2),
            day=Min(of="day", window=EVER, default=date(2100, 1, 1)),
            price=Min(of="price", window=EVER, default=Number("1.50")),
            when=Max(of="when", window=EVER, default=NEVER),
        )


@featureset
class Total:
    key: Optional[int]
    count: Optional[int] = F(Totals.count)
    total: Optional[int] = F(Totals.total)
    newest: Optional[List[int]] = F(Totals.newest)
    mean: Optional[float] = F(Totals.mean)
    most: Optional[int] = F(Totals.most)
    day: Optional[date] = F(Totals.day)
    price: Optional[Decimal[2]] = F(Totals.price)
    when: Optional[datetime] = F(Totals.when)


@pytest.mark.parametrize(
    ("feature", "seen", "unseen"),
    [
        ("count", 1, None),
        ("total", 5, None),
        ("newest", [5], None),
        ("mean", 5.0, -1.0),
        ("most", 5, -2),
        ("day", date(2024, 1, 1), date(2100, 1, 1)),
        ("price", Number("7.25"), Number("1.50")),
        ("when", NEW_YEAR, NEVER),
    ],
)
def test_a_null_key_has_the_values_of_one_never_seen(feature: str, seen: object, unseen: object) -> None:
    client = committed([Events, Totals], [Total])
    row = {"key": 1, "value": 5, "day": "2024-01-01", "price": "7.25", "when": NEW_YEAR, "at": NEW_YEAR}
    client.log("unseen", "events", pd.DataFrame([row]))
    rows = pd.DataFrame({"Total.key": pd.Series([1, 2, None], dtype="Int64")})
    answer = client.query([Total.key], [f"Total.{feature}"], rows).iloc[:, 0].tolist()
    assert [None if value is pd.NA else value for value in answer] == [seen, unseen, unseen]


@dataset(index=True)
class Spreads:
    key: int = field(key=True)
    count: int
    own: float
    none: Optional[float]
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Events)
    def aggregate(cls, events):
        return events.groupby("key").aggregate(
            count=Count(window=EVER),
            own=Stddev(of="value", window=EVER),
            none=Stddev(of="value", window=EVER, default=None),
        )


def test_a_default_that_an_aggregates_own_one_hides_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"Spread\.own: default=0\.5 .*Spreads\.own .*-1\.0.*default=None") as warned:

        @featureset
        class Spread:
            key: Optional[int]
            count: int = F(Spreads.count, default=7)
            own: float = F(Spreads.own, default=0.5)
            none: float = F(Spreads.none, default=0.5)

    # Only one of the three has no effect, and the warning shows the line of the definition.
    assert [warning.filename for warning in warned] == [__file__]
    client = committed([Events, Spreads], [Spread])
    rows = pd.DataFrame({"Spread.key": pd.Series([2, None], dtype="Int64")})
    answer = client.query([Spread.key], [Spread.count, Spread.own, Spread.none], rows)
    assert answer.to_numpy().tolist() == [[7, -1.0, 0.5]] * 2


def test_the_default_of_an_aggregate_may_be_repeated() -> None:
    @featureset
    class Spread:
        key: Optional[int]
        own: float = F(Spreads.own, default=-1.0)

    assert Spread.own.default == -1.0
