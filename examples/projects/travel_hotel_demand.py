"""Hotels: how full a night is already, how fast it fills, and how many people look at it.

The features set the price of a room for a night to come.
"""

from datetime import date, datetime
from decimal import Decimal as PythonDecimal

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Hopping, oneof
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "revenue@hotels.example"
hotels = Webhook(name="hotels")


@source(hotels.endpoint("bookings"), disorder="2d", cdc="upsert")
@dataset(index=True)
class Bookings:
    booking: str = field(key=True)
    hotel: str
    night: date
    rooms: int
    price: Decimal[2]
    status: oneof(str, ["held", "paid", "cancelled"])
    booked: datetime
    changed: datetime = field(timestamp=True)


@source(hotels.endpoint("searches"), disorder="1h", cdc="append")
@dataset
class Searches:
    hotel: str
    night: date
    visitor: str
    at: datetime


@source(hotels.endpoint("hotels"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Hotels:
    hotel: str = field(key=True)
    rooms: int
    since: datetime


@dataset(index=True)
class Nights:
    hotel: str = field(key=True)
    night: date = field(key=True)
    sold: int
    turnover: Decimal[2]
    changed: datetime

    @pipeline
    @inputs(Bookings)
    def sold_rooms(cls, bookings: Dataset):
        # As of the last full hour; cancelled bookings leave it.
        ever = Hopping("forever", "1h")
        return (
            bookings.filter(col("status") != "cancelled")
            .groupby("hotel", "night")
            .aggregate(sold=Sum(of="rooms", window=ever), turnover=Sum(of="price", window=ever))
        )


@dataset(index=True)
class Pace:
    """Rooms that were booked within a week, and not cancelled since, by the time of the booking."""

    hotel: str = field(key=True)
    rooms_7d: int
    changed: datetime

    @pipeline
    @inputs(Bookings)
    def this_week(cls, bookings: Dataset):
        standing = bookings.filter(lambda df: df["status"] != "cancelled")
        return standing.groupby("hotel").aggregate(rooms_7d=Sum(of="rooms", window=Continuous("7d")), along="booked")


@dataset(index=True)
class Looks:
    hotel: str = field(key=True)
    night: date = field(key=True)
    visitors_1d: int
    at: datetime

    @pipeline
    @inputs(Searches)
    def visitors(cls, searches: Dataset):
        return searches.groupby("hotel", "night").aggregate(
            visitors_1d=Count(of="visitor", unique=True, approx=True, window=Continuous("1d"))
        )


@featureset
class Night:
    hotel: str
    night: date
    rooms: int = F(Hotels.rooms, default=0)
    sold: int = F(Nights.sold, default=0)
    turnover: Decimal[2] = F(Nights.turnover, default=PythonDecimal("0.00"))
    rooms_7d: int = F(Pace.rooms_7d, default=0)
    visitors: int = F(Looks.visitors_1d, default=0)
    occupancy: float = F(when(col("rooms") > 0).then(col("sold") / col("rooms")).otherwise(1.0))
    factor: float = F(
        when((col("occupancy") >= 0.75) & (col("visitors") > 1))
        .then(1.5)
        .when(col("occupancy") < 0.25)
        .then(0.75)
        .otherwise(1)
    )


def _booking(booking: str, rooms: int, price: str, status: str, booked: str, changed: str) -> dict:
    row = {
        "booking": booking,
        "hotel": "Post",
        "night": date(2026, 8, 15),
        "rooms": rooms,
        "price": PythonDecimal(price),
    }
    return {**row, "status": status, "booked": f"2026-{booked}:00Z", "changed": f"2026-{changed}:00Z"}


LOGS = [
    ("hotels", "hotels", [{"hotel": "Post", "rooms": 8, "since": "2026-01-01T00:00:00Z"}]),
    (
        "hotels",
        "bookings",
        [
            _booking("x", 2, "240.00", "held", "07-01T09:00", "07-01T09:00"),
            _booking("x", 2, "220.50", "paid", "07-01T09:00", "07-02T10:00"),
            _booking("y", 4, "400.00", "held", "07-06T12:00", "07-06T12:00"),
            _booking("y", 4, "400.00", "cancelled", "07-06T12:00", "07-09T12:00"),
            _booking("z", 1, "99.90", "paid", "07-20T12:00", "07-20T12:00"),
        ],
    ),
    (
        "hotels",
        "searches",
        [
            {"hotel": "Post", "night": date(2026, 8, 15), "visitor": v, "at": f"2026-07-07T{hour}:00:00Z"}
            for v, hour in (("a", 10), ("b", 11), ("a", 12))
        ],
    ),
]
ASKS = [
    {
        # Six of eight rooms are sold, all of them within a week. The second visitor counts once.
        "at": "2026-07-07T13:00:00Z",
        "inputs": {
            "Night.hotel": ["Post", "Post", "Krone"],
            "Night.night": [date(2026, 8, 15), date(2026, 8, 16), date(2026, 8, 15)],
        },
        "outputs": [
            "Night.sold",
            "Night.turnover",
            "Night.rooms_7d",
            "Night.visitors",
            "Night.occupancy",
            "Night.factor",
        ],
        "expected": {
            "Night.sold": [6, 0, 0],
            "Night.turnover": [PythonDecimal("620.50"), PythonDecimal("0.00"), PythonDecimal("0.00")],
            "Night.rooms_7d": [6, 6, 0],
            "Night.visitors": [2, 0, 0],
            "Night.occupancy": [0.75, 0.0, 1.0],
            "Night.factor": [1.5, 0.75, 1.0],
        },
    },
    {
        # Four rooms were cancelled, the other two were booked more than a week ago.
        "at": "2026-07-09T13:00:00Z",
        "inputs": {"Night.hotel": ["Post"], "Night.night": [date(2026, 8, 15)]},
        "outputs": ["Night.sold", "Night.turnover", "Night.rooms_7d", "Night.factor"],
        "expected": {
            "Night.sold": [2],
            "Night.turnover": [PythonDecimal("220.50")],
            "Night.rooms_7d": [0],
            "Night.factor": [1.0],
        },
    },
    {
        # The booking of the 20th is the newest: nothing has closed its hour yet.
        "at": None,
        "inputs": {"Night.hotel": ["Post"], "Night.night": [date(2026, 8, 15)]},
        "outputs": ["Night.rooms", "Night.sold", "Night.occupancy"],
        "expected": {"Night.rooms": [8], "Night.sold": [2], "Night.occupancy": [0.25]},
    },
]
