"""Kitchens: what a restaurant has on its stove, and how long it takes to cook.

The features serve the delivery time that a guest is promised, and the decision to pause a restaurant that drowns.
"""

from datetime import datetime
from decimal import Decimal as PythonDecimal
from typing import List, Optional

from caraway.connectors import Webhook, eval, source
from caraway.datasets import Average, Count, Dataset, FirstK, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Hopping, struct
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "delivery@food.example"
food = Webhook(name="food")


@struct
class Item:
    dish: str
    count: int
    price: Decimal[2]


@source(food.endpoint("app_orders"), disorder="6h", cdc="append", preproc={"channel": "app"})
@dataset
class AppOrders:
    order: int
    restaurant: str
    channel: str
    items: List[Item]
    at: datetime


@source(
    food.endpoint("phone_orders"),
    disorder="6h",
    cdc="append",
    preproc={"channel": eval(col("line").str.lower(), schema={"line": str})},
)
@dataset
class PhoneOrders:
    order: int
    restaurant: str
    channel: str
    items: List[Item]
    at: datetime


@source(food.endpoint("cooked"), disorder="6h", cdc="append")
@dataset
class Cooked:
    order: int
    restaurant: str
    minutes: Optional[float]
    at: datetime


@dataset
class Dishes:
    """Every line of every order."""

    order: int
    restaurant: str
    dish: str
    portions: int
    price: Decimal[2]
    at: datetime

    @pipeline
    @inputs(AppOrders, PhoneOrders)
    def lines(cls, app: Dataset, phone: Dataset):
        return (
            (app + phone)
            .explode("items")
            .dropnull("items")
            .assign(
                dish=col("items").struct.get("dish").astype(str),
                portions=col("items").struct.get("count").astype(int),
                price=col("items").struct.get("price").astype(Decimal[2]),
            )
            .drop("items", "channel")
        )


@dataset(index=True)
class Stove:
    restaurant: str = field(key=True)
    portions_30m: int
    lines_30m: int
    turnover_1d: Decimal[2]
    first_dishes: List[str]
    at: datetime

    @pipeline
    @inputs(Dishes)
    def busy(cls, dishes: Dataset):
        return dishes.groupby("restaurant").aggregate(
            portions_30m=Sum(of="portions", window=Continuous("30m")),
            lines_30m=Count(window=Continuous("30m")),
            turnover_1d=Sum(of="price", window=Continuous("1d")),
            first_dishes=FirstK(of="dish", limit=2, dedup=True, dropnull=False, window=Continuous("forever")),
        )


@dataset(index=True)
class CookingTimes:
    restaurant: str = field(key=True)
    minutes_1h: float
    at: datetime

    @pipeline
    @inputs(Cooked)
    def smoothed(cls, cooked: Dataset):
        # A new figure every ten minutes, so that the promise doesn't jump with each order.
        hour = Hopping("1h", "10m")
        return (
            cooked.dropnull()
            .groupby("restaurant")
            .aggregate(minutes_1h=Average(of="minutes", window=hour, default=20.0))
        )


@featureset
class Restaurant:
    restaurant: str
    portions: int = F(Stove.portions_30m, default=0)
    turnover: Optional[Decimal[2]] = F(Stove.turnover_1d)
    first_dishes: List[str] = F(Stove.first_dishes, default=[])
    minutes: float = F(CookingTimes.minutes_1h, default=20.0)
    promise_min: int = F((col("minutes") * (1.0 + col("portions") / 10.0)).num.ceil())
    pause: bool = F((col("portions") >= 5) & (col("minutes") > 25.0))


def _item(dish: str, count: int, price: str) -> dict:
    return {"dish": dish, "count": count, "price": PythonDecimal(price)}


LOGS = [
    (
        "food",
        "app_orders",
        [
            {
                "order": 1,
                "restaurant": "Napoli",
                "items": [_item("margherita", 2, "9.50"), _item("cola", 1, "3.20")],
                "at": "2026-03-01T18:05:00Z",
            },
            {"order": 2, "restaurant": "Napoli", "items": [], "at": "2026-03-01T18:06:00Z"},
        ],
    ),
    (
        "food",
        "phone_orders",
        [
            {
                "order": 3,
                "restaurant": "Napoli",
                "line": "PHONE",
                "items": [_item("tiramisu", 2, "6.05"), _item("margherita", 1, "9.50")],
                "at": "2026-03-01T18:20:00Z",
            }
        ],
    ),
    (
        "food",
        "cooked",
        [
            {"order": 1, "restaurant": "Napoli", "minutes": 22.0, "at": "2026-03-01T18:27:00Z"},
            {"order": 2, "restaurant": "Napoli", "minutes": None, "at": "2026-03-01T18:28:00Z"},
            {"order": 3, "restaurant": "Napoli", "minutes": 38.0, "at": "2026-03-01T18:41:00Z"},
            {"order": 4, "restaurant": "Roma", "minutes": 10.0, "at": "2026-03-01T18:50:00Z"},
        ],
    ),
]
ASKS = [
    {
        # All portions are on the stove. The hop that ended at 18:30 has its 22 minutes. ceil(22 * 1.6) = 36.
        "at": "2026-03-01T18:34:59Z",
        "inputs": {"Restaurant.restaurant": ["Napoli", "Roma"]},
        "outputs": ["Restaurant.portions", "Restaurant.turnover", "Restaurant.minutes", "Restaurant.promise_min"],
        "expected": {
            "Restaurant.portions": [6, 0],
            "Restaurant.turnover": [PythonDecimal("28.25"), None],
            "Restaurant.minutes": [22.0, 20.0],
            "Restaurant.promise_min": [36, 20],
        },
    },
    {
        # From 18:50 on the hour holds both, (22 + 38) / 2; the first order has left the half hour.
        "at": "2026-03-01T18:50:00Z",
        "inputs": {"Restaurant.restaurant": ["Napoli"]},
        "outputs": ["Restaurant.portions", "Restaurant.minutes", "Restaurant.pause", "Restaurant.first_dishes"],
        "expected": {
            "Restaurant.portions": [3],
            "Restaurant.minutes": [30.0],
            "Restaurant.pause": [False],
            "Restaurant.first_dishes": [["margherita", "cola"]],
        },
    },
]
