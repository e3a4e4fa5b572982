"""Fares: whether the price of a flight is good, against what the route cost lately and for how long it is still to go.

The features decide between "buy now" and "wait" in an app that watches fares.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, FirstK, Min, Quantile, Stddev, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling, regex
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "fares@travel.example"
fares = Webhook(name="fares")
Route = regex("[A-Z]{3}-[A-Z]{3}")


@source(fares.endpoint("quotes"), disorder="1d", cdc="append")
@dataset
class Quotes:
    route: Route
    departs: str  # on the clock of the airport, as airlines write it: 05.09.2026 18:30
    price: float
    currency: str
    quoted: datetime


@source(fares.endpoint("rates"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Rates:
    """What a unit of a currency is in euros."""

    code: str = field(key=True)
    euros: float
    fixed: datetime


@dataset
class InEuros:
    route: Route
    departs_at: datetime
    days_ahead: int
    price: float
    quoted: datetime = field(timestamp=True)

    @pipeline
    @inputs(Quotes, Rates)
    def convert(cls, quotes: Dataset, rates: Dataset):
        departs_at = col("departs").str.strptime("%d.%m.%Y %H:%M", timezone="Europe/Rome")
        # A rate of the day before yesterday is too old to be trusted.
        return (
            quotes.join(rates, how="left", left_on=["currency"], right_on=["code"], within=("2d", "0s"))
            .assign(
                euros=when(col("currency") == "EUR").then(1.0).otherwise(col("euros")).astype(Optional[float]),
                departs_at=departs_at.astype(datetime),
                days_ahead=departs_at.dt.since(col("quoted"), unit="day").astype(int),
            )
            .dropnull("euros")
            .assign(price=(col("price") * col("euros")).num.round(2).astype(float))
            .select("route", "departs_at", "days_ahead", "price", "quoted")
        )


@dataset(index=True)
class RoutePrices:
    route: Route = field(key=True)
    lowest: Optional[float]
    median: float
    spread: Optional[float]
    quoted: datetime

    @pipeline
    @inputs(InEuros)
    def month(cls, quotes: Dataset):
        window = Continuous("4w 2d")
        return (
            quotes.filter((col("days_ahead") >= 7) & (col("price") > 0))
            .groupby("route")
            .aggregate(
                lowest=Min(of="price", window=window),
                median=Quantile(of="price", p=0.5, approx=True, default=-1.0, window=window),
                spread=Stddev(of="price", default=None, window=window),
            )
        )


@dataset(index=True)
class FirstPrices:
    """How a flight started: its first quotes of the last full day."""

    route: Route = field(key=True)
    departs_at: datetime = field(key=True)
    prices: List[float]
    quoted: datetime = field(timestamp=True)

    @pipeline
    @inputs(InEuros)
    def started(cls, quotes: Dataset):
        return quotes.groupby("route", "departs_at").aggregate(
            prices=FirstK(of="price", limit=2, dedup=False, dropnull=False, window=Tumbling("1d"))
        )


@featureset
class Fare:
    route: Route
    departs_at: datetime
    price: float
    lowest: Optional[float] = F(RoutePrices.lowest)
    median: float = F(RoutePrices.median, default=-1.0)
    spread: Optional[float] = F(RoutePrices.spread)
    first_prices: List[float] = F(FirstPrices.prices, default=[])
    days_left: int = F(col("departs_at").dt.since(now(), unit="day"))
    local: str = F(col("departs_at").dt.with_tz("Europe/Rome").strftime("%a %d %b %H:%M"))
    above_first: Optional[float] = F(col("price") - col("first_prices").list.at(0))
    advice: str = F(
        when(col("median") < 0.0)
        .then("unknown")
        .when((col("price") <= col("median")) | (col("days_left") < 7))
        .then("buy")
        .otherwise("wait")
    )


def _quote(departs: str, price: float, currency: str, time: str) -> dict:
    return {
        "route": "GRZ-FCO",
        "departs": departs,
        "price": price,
        "currency": currency,
        "quoted": f"2026-08-{time}:00Z",
    }


LOGS = [
    (
        "fares",
        "rates",
        [
            {"code": "USD", "euros": 0.5, "fixed": "2026-08-01T00:00:00Z"},
            {"code": "USD", "euros": 0.75, "fixed": "2026-08-10T00:00:00Z"},
        ],
    ),
    (
        "fares",
        "quotes",
        [
            _quote("05.09.2026 18:30", 100.0, "EUR", "10T08:00"),
            _quote("05.09.2026 18:30", 80.0, "USD", "10T09:00"),  # 60 euros
            _quote("05.09.2026 18:30", 80.0, "EUR", "10T09:30"),
            _quote("14.08.2026 07:00", 300.0, "EUR", "10T10:00"),  # less than a week ahead
            _quote("05.09.2026 18:30", 10.0, "USD", "13T09:00"),  # the rate is too old
            _quote("06.09.2026 18:30", 90.0, "EUR", "13T09:00"),
        ],
    ),
]
_FLIGHT = datetime.fromisoformat("2026-09-05T16:30:00+00:00")  # summer in Rome: 18:30
ASKS = [
    {
        # 60, 80, 100: the mean is 80, the squares of what lies between sum up to 800.
        "at": "2026-08-12T12:00:00Z",
        "inputs": {
            "Fare.route": ["GRZ-FCO", "GRZ-FCO", "VIE-CDG"],
            "Fare.departs_at": [_FLIGHT, _FLIGHT, _FLIGHT],
            "Fare.price": [70.0, 130.0, 1.0],
        },
        "outputs": ["Fare.lowest", "Fare.median", "Fare.spread", "Fare.days_left", "Fare.local", "Fare.advice"],
        "expected": {
            "Fare.lowest": [60.0, 60.0, None],
            "Fare.median": [80.0, 80.0, -1.0],
            "Fare.spread": [(800 / 3) ** 0.5, (800 / 3) ** 0.5, None],
            "Fare.days_left": [24, 24, 24],
            "Fare.local": ["Sat 05 Sep 18:30"] * 3,
            "Fare.advice": ["buy", "wait", "unknown"],
        },
    },
    {
        # The 10th was the last full day; the quotes of the 13th have closed it.
        "at": "2026-08-11T12:00:00Z",
        "inputs": {"Fare.route": ["GRZ-FCO"], "Fare.departs_at": [_FLIGHT], "Fare.price": [130.0]},
        "outputs": ["Fare.first_prices", "Fare.above_first"],
        "expected": {"Fare.first_prices": [[100.0, 60.0]], "Fare.above_first": [30.0]},
    },
]
TOLERANCE = 1e-9  # of the standard deviation
