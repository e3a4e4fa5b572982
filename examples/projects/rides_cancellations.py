"""Cancellations: how often a driver drops a booking, and how often a rider does.

The features serve dispatch: who cancels a lot gets fewer offers, and a new driver gets the benefit of the doubt.
"""

from datetime import UTC, datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, oneof
from caraway.expr import col, now, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_values_to_be_in_set, expectations, inputs

__owner__ = "dispatch@rides.example"
rides = Webhook(name="rides_bookings")
STATES = ["booked", "driving", "done", "dropped_by_driver", "dropped_by_rider"]


@source(rides.endpoint("bookings"), disorder="2d", cdc="upsert")
@dataset(index=True)
class Bookings:
    """One row a booking; its state changes over time."""

    booking: str = field(key=True)
    driver: int
    rider: int
    state: oneof(str, STATES)
    changed: datetime

    @expectations
    def states(cls):
        return [expect_column_values_to_be_in_set(str(cls.state), value_set=STATES, mostly=1.0)]


@dataset
class Changes:
    """Each state that a booking ever had, as an event."""

    booking: str
    driver: int
    rider: int
    state: oneof(str, STATES)
    changed: datetime

    @pipeline
    @inputs(Bookings)
    def entered(cls, bookings: Dataset):
        return bookings.changelog(insert="entered").filter(col("entered")).drop("entered")


@dataset(index=True)
class DriverRecord:
    driver: int = field(key=True)
    offers: int
    dropped: int
    changed: datetime

    @pipeline
    @inputs(Changes)
    def over_a_week(cls, changes: Dataset):
        week = Continuous("7d")
        marked = changes.assign(
            offer=when(col("state") == "booked").then(1).astype(Optional[int]),
            drop=when(col("state") == "dropped_by_driver").then(1).astype(Optional[int]),
        )
        return marked.groupby("driver").aggregate(
            offers=Count(of="offer", window=week, unique=False, dropnull=True),
            dropped=Count(of="drop", window=week, dropnull=True),
        )


@dataset(index=True)
class FirstOffers:
    driver: int = field(key=True)
    booking: str
    changed: datetime

    @pipeline
    @inputs(Changes)
    def first(cls, changes: Dataset):
        return changes.select("driver", "booking", "changed").groupby("driver").first()


@dataset(index=True)
class RiderHistory:
    rider: int = field(key=True)
    endings: list[str]
    changed: datetime

    @pipeline
    @inputs(Changes)
    def last_endings(cls, changes: Dataset):
        ended = changes.filter(lambda df: ~df["state"].isin(["booked", "driving"]))
        text = ended.assign(ending=col("state").astype(str))
        return text.groupby("rider").aggregate(
            endings=LastK(of="ending", limit=3, dedup=False, window=Continuous("forever"))
        )


@featureset
class Match:
    driver: int
    rider: int
    offers: int = F(DriverRecord.offers, default=0)
    dropped: int = F(DriverRecord.dropped, default=0)
    first_offer: Optional[datetime] = F(FirstOffers.changed)
    days_active: Optional[int] = F(now().dt.since(col("first_offer"), unit="day"))
    drop_rate: float = F(when(col("offers") < 2).then(0.0).otherwise(col("dropped") / col("offers")))
    endings: list[str] = F(RiderHistory.endings, default=[])
    fickle_rider: bool = F(col("endings").list.filter("e", var("e") == "dropped_by_rider").list.len() >= 2)


def _booking(booking: str, driver: int, rider: int, state: str, changed: str) -> dict:
    return {"booking": booking, "driver": driver, "rider": rider, "state": state, "changed": f"2026-02-{changed}:00Z"}


LOGS = [
    (
        "rides_bookings",
        "bookings",
        [
            _booking("a", 1, 50, "booked", "01T08:00"),
            _booking("a", 1, 50, "done", "01T08:30"),
            _booking("b", 1, 51, "booked", "05T08:00"),
            _booking("b", 1, 51, "dropped_by_driver", "05T08:02"),
            _booking("c", 1, 50, "booked", "06T09:00"),
            _booking("c", 1, 50, "dropped_by_rider", "06T09:01"),
            _booking("d", 2, 50, "booked", "06T10:00"),
            _booking("d", 2, 50, "dropped_by_rider", "06T10:05"),
        ],
    )
]
ASKS = [
    {
        # Driver 1 had three offers within the week and dropped one of them.
        "at": "2026-02-07T08:00:00Z",
        "inputs": {"Match.driver": [1, 2, 3], "Match.rider": [50, 51, 52]},
        "outputs": [
            "Match.offers",
            "Match.dropped",
            "Match.drop_rate",
            "Match.days_active",
            "Match.endings",
            "Match.fickle_rider",
        ],
        "expected": {
            "Match.offers": [3, 1, 0],
            "Match.dropped": [1, 0, 0],
            "Match.drop_rate": [1 / 3, 0.0, 0.0],
            "Match.days_active": [6, 0, None],
            "Match.endings": [["dropped_by_rider", "dropped_by_rider", "done"], ["dropped_by_driver"], []],
            "Match.fickle_rider": [True, False, False],
        },
    },
    {
        # Two days on, the first offer is out of the window.
        "at": "2026-02-09T08:00:00Z",
        "inputs": {"Match.driver": [1], "Match.rider": [51]},
        "outputs": ["Match.offers", "Match.drop_rate"],
        "expected": {"Match.offers": [2], "Match.drop_rate": [0.5]},
    },
    {
        "at": None,
        "inputs": {"Match.driver": [2, 9], "Match.rider": [51, 9]},
        "outputs": ["Match.first_offer", "Match.offers", "Match.endings"],
        "expected": {
            "Match.first_offer": [datetime(2026, 2, 6, 10, tzinfo=UTC), None],
            "Match.offers": [0, 0],
            "Match.endings": [["dropped_by_driver"], []],
        },
    },
]
