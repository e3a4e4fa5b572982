"""Flats for sale: what a district costs, how often a price was cut, and how far it is to the office.

The features sort the results for somebody who looks for a flat, and show sellers where they stand.
"""

import math
from datetime import UTC, date, datetime
from decimal import Decimal as PythonDecimal
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Max, Min, Quantile, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Hopping, between, struct
from caraway.expr import col, lit, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "search@flats.example"
flats = Webhook(name="flats")
EVER = Hopping("forever", "1h")
RADIAN = math.pi / 180
EARTH_KM = 6371.0


@struct
class Place:
    lat: between(float, -90, 90)
    lon: between(float, -180, 180)


@struct
class Card:
    title: str
    per_m2: Optional[float]


@source(flats.endpoint("listings"), disorder="7d", cdc="upsert")
@dataset(index=True)
class Listings:
    listing: int = field(key=True)
    district: str
    place: Place
    square_metres: int
    thousands: Optional[Decimal[1]]
    free_from: date
    state: str
    changed: datetime


@dataset(index=True)
class Districts:
    """Over what is for sale right now: sold flats leave the figures."""

    district: str = field(key=True)
    offers: int
    median: float
    cheapest: Optional[Decimal[1]]
    next_free: Optional[date]
    changed: datetime

    @pipeline
    @inputs(Listings)
    def on_offer(cls, listings: Dataset):
        offers = listings.filter(col("state") == "offered").dropnull("thousands")
        return offers.groupby("district").aggregate(
            offers=Count(window=EVER),
            median=Quantile(of="thousands", p=0.5, approx=True, default=0.0, window=EVER),
            cheapest=Min(of="thousands", window=EVER),
            next_free=Min(of="free_from", window=EVER),
        )


@dataset
class Versions:
    listing: int
    thousands: Decimal[1]
    at: datetime

    @pipeline
    @inputs(Listings)
    def each(cls, listings: Dataset):
        versions = listings.changelog(insert="added").filter(col("added")).dropnull("thousands")
        return versions.select("listing", "thousands").rename({"changed": "at"})


@dataset(index=True)
class FirstPrices:
    listing: int = field(key=True)
    thousands: Decimal[1]
    at: datetime

    @pipeline
    @inputs(Versions)
    def first(cls, versions: Dataset):
        return versions.groupby("listing").first()


@dataset(index=True)
class PriceHistory:
    listing: int = field(key=True)
    highest: Optional[Decimal[1]]
    versions: int
    at: datetime

    @pipeline
    @inputs(Versions)
    def year(cls, versions: Dataset):
        return versions.groupby("listing").aggregate(
            highest=Max(of="thousands", window=Continuous("1y")), versions=Count(window=Continuous("1y"))
        )


@featureset
class Searcher:
    office: Place


@featureset
class Flat:
    listing: int
    district: str = F(Listings.district, default="?")
    place: Optional[Place] = F(Listings.place)
    square_metres: Optional[int] = F(Listings.square_metres)
    thousands: Optional[Decimal[1]] = F(Listings.thousands)
    first_price: Optional[Decimal[1]] = F(FirstPrices.thousands)
    first_seen: Optional[datetime] = F(FirstPrices.at)
    highest: Optional[Decimal[1]] = F(PriceHistory.highest)
    versions: int = F(PriceHistory.versions, default=0)
    median: float = F(Districts.median, default=0.0)
    offers: int = F(Districts.offers, default=0)
    next_free: Optional[date] = F(Districts.next_free)
    cut: bool = F((col("highest") != col("thousands")).fillnull(False))
    unchanged: bool = F((col("first_price") == col("thousands")).fillnull(False))
    weeks: Optional[int] = F(now().dt.since(col("first_seen"), unit="week"))
    median_per_m2: Optional[float] = F(
        when(col("square_metres") > 0)
        .then((col("median") * 1000.0 / col("square_metres")).round(2))
        .otherwise(lit(None))
    )
    card: Card = F(Card.expr(title=col("district").str.upper().str.concat(" flat"), per_m2=col("median_per_m2")))


def _radians(place: str, axis: str):
    return col(place).struct.get(axis) * RADIAN


def _half_chord():
    """Compute the haversine of the angle between two places, as seen from the centre of the earth."""
    lat = ((_radians("place", "lat") - _radians("office", "lat")) / 2).num.sin().num.pow(2)
    lon = ((_radians("place", "lon") - _radians("office", "lon")) / 2).num.sin().num.pow(2)
    return lat + _radians("place", "lat").num.cos() * _radians("office", "lat").num.cos() * lon


@featureset
class Commute:
    office: Place = F(Searcher.office)
    place: Optional[Place] = F(Flat.place)
    km: Optional[float] = F(_half_chord().num.sqrt().num.arcsin() * 2.0 * EARTH_KM)
    near: bool = F((col("km") < 5.0).fillnull(False))


def _listing(listing: int, lat: float, thousands: float | None, state: str, changed: str) -> dict:
    row = {"listing": listing, "district": "Lend", "place": {"lat": lat, "lon": 15.0}, "square_metres": 50}
    free_from = date(2026, 6, listing)
    return {**row, "thousands": thousands, "free_from": free_from, "state": state, "changed": f"2026-{changed}:00Z"}


LOGS = [
    (
        "flats",
        "listings",
        [
            _listing(1, 47.0, 200.0, "offered", "01-05T08:30"),
            _listing(1, 47.0, 180.5, "offered", "01-20T08:30"),
            _listing(2, 48.0, 250.0, "offered", "01-06T08:30"),
            _listing(3, 47.0, 300.0, "offered", "01-07T08:30"),
            _listing(3, 47.0, 300.0, "sold", "02-01T08:30"),
            _listing(4, 47.0, None, "offered", "02-03T08:30"),
            _listing(5, 47.0, 999.0, "planned", "02-03T08:30"),
        ],
    )
]
TOLERANCE = 1e-9
ASKS = [
    {
        # 180.5, 250, 300 are offered; one price was cut. 1000 * 250 / 50 = 5000.
        "at": "2026-01-28T12:00:00Z",
        "inputs": {"Flat.listing": [1, 2, 9]},
        "outputs": [
            "Flat.offers",
            "Flat.median",
            "Flat.cut",
            "Flat.unchanged",
            "Flat.weeks",
            "Flat.card",
            "Flat.next_free",
        ],
        "expected": {
            "Flat.offers": [3, 3, 0],
            "Flat.median": [250.0, 250.0, 0.0],
            "Flat.cut": [True, False, False],
            "Flat.unchanged": [False, True, False],
            "Flat.weeks": [3, 3, None],
            "Flat.card": [
                {"title": "LEND flat", "per_m2": 5000.0},
                {"title": "LEND flat", "per_m2": 5000.0},
                {"title": "? flat", "per_m2": None},
            ],
            "Flat.next_free": [date(2026, 6, 1), date(2026, 6, 1), None],
        },
    },
    {
        # A degree of latitude is a 360th of the way around the earth.
        "at": "2026-01-28T12:00:00Z",
        "inputs": {"Flat.listing": [1, 2, 9], "Searcher.office": [{"lat": 47.0, "lon": 15.0}] * 3},
        "outputs": ["Commute.km", "Commute.near"],
        "expected": {"Commute.km": [0.0, math.tau * EARTH_KM / 360, None], "Commute.near": [True, False, False]},
    },
    {
        # Each as it is by now; the first price is of the first version, offered or not.
        "at": None,
        "inputs": {"Flat.listing": [1, 4, 5]},
        "outputs": ["Flat.place", "Flat.thousands", "Flat.first_price", "Flat.first_seen"],
        "expected": {
            "Flat.place": [{"lat": 47.0, "lon": 15.0}] * 3,
            "Flat.thousands": [PythonDecimal("180.5"), None, PythonDecimal("999.0")],
            "Flat.first_price": [PythonDecimal("200.0"), None, PythonDecimal("999.0")],
            "Flat.first_seen": [datetime(2026, 1, 5, 8, 30, tzinfo=UTC), None, datetime(2026, 2, 3, 8, 30, tzinfo=UTC)],
        },
    },
]
