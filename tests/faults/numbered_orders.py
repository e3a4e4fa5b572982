"""Events with numbers, and what a commit computes of them: a join on Spark, and aggregates of it."""

# ruff: noqa: ANN001, ANN202 (definitions as users write them)

# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, arg-type, misc, return-value"

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.featuresets import Featureset, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs

__owner__ = "power@example.com"

WEBHOOK = "power"
USERS, PRICES = 7, {"pen": 2, "cup": 5, "hat": 11}
ITEMS = sorted(PRICES)
FOREVER = Continuous("forever")
BEGIN = datetime(2023, 11, 14, tzinfo=UTC)
# The value of a key without events.
NONE = -1


def definitions(*, second: bool, version: int = 1) -> tuple[list[Dataset], list[Featureset]]:
    """Return the definitions of the first commit, or those of the second one, which adds an aggregate.

    `version` is that of all that is computed.
    """
    hook = Webhook(name=WEBHOOK)

    @source(hook.endpoint("prices"), disorder="14d", cdc="upsert")
    @dataset(index=True)
    class Prices:
        item: str = field(key=True)
        price: int
        at: datetime

    @source(hook.endpoint("orders"), disorder="14d", cdc="append")
    @dataset
    class Orders:
        number: int
        user: int
        item: str
        at: datetime

    @dataset(version=version)
    class Priced:
        number: int
        user: int
        price: int
        at: datetime

        @pipeline
        @inputs(Orders, Prices)
        def join(cls, orders, prices):
            return orders.join(prices, how="inner", on=["item"]).drop("item")

    @dataset(index=True, version=version)
    class Spent:
        user: int = field(key=True)
        orders: int
        total: int
        at: datetime

        @pipeline
        @inputs(Priced)
        def add(cls, priced):
            return priced.groupby("user").aggregate(orders=Count(window=FOREVER), total=Sum(of="price", window=FOREVER))

    @dataset(index=True, version=version)
    class Seen:
        number: int = field(key=True)
        times: int
        at: datetime

        @pipeline
        @inputs(Priced)
        def count(cls, priced):
            return priced.groupby("number").aggregate(times=Count(window=FOREVER))

    @featureset
    class Shopper:
        user: int
        orders: int = F(Spent.orders, default=NONE)
        total: int = F(Spent.total, default=NONE)

    @featureset
    class Numbered:
        number: int
        times: int = F(Seen.times, default=0)

    datasets, featuresets = [Prices, Orders, Priced, Spent, Seen], [Shopper, Numbered]
    if second:

        @dataset(index=True, version=version)
        class Bought:
            item: str = field(key=True)
            orders: int
            at: datetime

            @pipeline
            @inputs(Orders)
            def count(cls, orders):
                return orders.groupby("item").aggregate(orders=Count(window=FOREVER))

        @featureset
        class Item:
            item: str
            orders: int = F(Bought.orders, default=NONE)

        datasets, featuresets = [*datasets, Bought], [*featuresets, Item]
    return datasets, featuresets


def order(number: int) -> dict[str, Any]:
    """Return the event of a number."""
    at = (BEGIN + timedelta(seconds=number + 1)).isoformat()
    return {"number": number, "user": number % USERS, "item": ITEMS[number % len(ITEMS)], "at": at}


def prices() -> list[dict[str, Any]]:
    """Return the prices, which are there before the first event."""
    return [{"item": item, "price": price, "at": BEGIN.isoformat()} for item, price in PRICES.items()]


def spent_of(numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return the orders and the total of each user if each of these events counts once."""
    found: dict[int, tuple[int, int]] = dict.fromkeys(range(USERS), (NONE, NONE))
    for number in set(numbers):
        event = order(number)
        orders, total = found[event["user"]]
        price = PRICES[event["item"]]
        found[event["user"]] = (1, price) if orders == NONE else (orders + 1, total + price)
    return found


def bought_of(numbers: Iterable[int]) -> dict[str, int]:
    """Return the orders of each item if each of these events counts once."""
    found = Counter(order(number)["item"] for number in set(numbers))
    return {item: found.get(item, NONE) for item in ITEMS}
