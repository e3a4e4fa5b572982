"""Orders, prices and users, and what jobs compute from them, as the product and the oracle have it."""

# ruff: noqa: ANN001, ANN202 (definitions as users write them)

# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, arg-type, misc, return-value"

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.expr import col
from caraway.featuresets import Featureset, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs
from tests.unit.oracle import plain
from tests.unit.oracle.plain import SECOND, Aggregated, Described, Feature, Logged, Read

__owner__ = "known@example.com"

USERS, ITEMS, CITIES = ("ann", "bob", "cid", "dee"), ("pen", "cup", "hat"), ("oslo", "rome")
MISSING = -1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The sources and the endpoints to which they are logged.
SOURCES = {"Orders": "orders", "Prices": "prices", "Users": "users"}
KEYS = {"Orders": (), "Prices": ("item",), "Users": ("user",)}
FOREVER, SOON = plain.Continuous(None), plain.Continuous(20 * SECOND)


def definitions(name: str, version: int) -> tuple[list[Dataset], list[Dataset], Featureset]:
    """Return the sources, what is derived from them, and a featureset with all columns of the latter.

    Equal datasets of two branches share topics, so those of each test have a `version` and a webhook of their own.
    """
    hook = Webhook(name=name)

    @source(hook.endpoint("orders"), disorder="14d", cdc="append")
    @dataset(version=version)
    class Orders:
        user: str
        item: str
        amount: int
        at: datetime

    @source(hook.endpoint("prices"), disorder="14d", cdc="debezium")
    @dataset(index=True, version=version)
    class Prices:
        item: str = field(key=True)
        price: int
        at: datetime

    @source(hook.endpoint("users"), disorder="14d", cdc="debezium")
    @dataset(index=True, version=version)
    class Users:
        user: str = field(key=True, erase_key=True)
        city: str
        item: str
        at: datetime

    @dataset(index=True, version=version)
    class Priced:
        user: str = field(key=True)
        total: int
        soon: int
        at: datetime

        @pipeline
        @inputs(Orders, Prices)
        def join(cls, orders, prices):
            joined = orders.join(prices, how="left", on=["item"]).dropnull("price")
            return joined.groupby("user").aggregate(
                total=Sum(of="price", window=Continuous("forever")), soon=Count(window=Continuous("20s"))
            )

    @dataset(index=True, version=version)
    class Cities:
        city: str = field(key=True)
        n: int
        amount: int
        at: datetime

        @pipeline
        @inputs(Orders, Users)
        def join(cls, orders, users):
            joined = orders.join(users, how="inner", on=["user"], fields=["city"])
            return joined.groupby("city").aggregate(
                n=Count(window=Continuous("forever")), amount=Sum(of="amount", window=Continuous("20s"))
            )

    @dataset(index=True, version=version)
    class Distinct:
        user: str = field(key=True)
        n: int
        amount: int
        at: datetime

        @pipeline
        @inputs(Orders)
        def once(cls, orders):
            return (
                orders.dedup(by=["user", "item"])
                .groupby("user")
                .aggregate(n=Count(window=Continuous("forever")), amount=Sum(of="amount", window=Continuous("forever")))
            )

    @dataset(index=True, version=version)
    class Firsts:
        user: str = field(key=True)
        item: str
        amount: int
        at: datetime

        @pipeline
        @inputs(Orders)
        def first(cls, orders):
            return orders.groupby("user").first()

    @dataset(index=True, version=version)
    class Moves:
        city: str = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Users)
        def leave(cls, users):
            left = users.changelog(delete="gone").filter(col("gone"))
            return left.groupby("city").aggregate(n=Count(window=Continuous("forever")))

    @dataset(index=True, version=version)
    class Living:
        city: str = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Users)
        def count(cls, users):
            return users.groupby("city").aggregate(n=Count(window=Continuous("forever")))

    @dataset(index=True, version=version)
    class Wishes:
        user: str = field(key=True, erase_key=True)
        city: str
        item: str
        price: Optional[int]
        at: datetime

        @pipeline
        @inputs(Users, Prices)
        def join(cls, users, prices):
            return users.join(prices, how="left", on=["item"])

    @dataset(index=True, version=version)
    class Spending:
        user: str = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Orders)
        def count(cls, orders):
            return orders.groupby("user").aggregate(n=Count(window=Tumbling("5s")))

    @dataset(index=True, version=version)
    class Ranks:
        n: int = field(key=True)
        users: int
        at: datetime

        @pipeline
        @inputs(Spending)
        def count(cls, spending):
            return spending.groupby("n").aggregate(users=Count(window=Continuous("forever")))

    @featureset
    class Known:
        user: str
        item: str
        city: str
        n: int
        total: int = F(Priced.total, default=MISSING)
        soon: int = F(Priced.soon, default=MISSING)
        orders: int = F(Cities.n, default=MISSING)
        amount: int = F(Cities.amount, default=MISSING)
        distinct: int = F(Distinct.n, default=MISSING)
        distinct_amount: int = F(Distinct.amount, default=MISSING)
        first_item: str = F(Firsts.item, default="")
        first_amount: int = F(Firsts.amount, default=MISSING)
        moves: int = F(Moves.n, default=MISSING)
        living: int = F(Living.n, default=MISSING)
        wish_city: str = F(Wishes.city, default="")
        wish_item: str = F(Wishes.item, default="")
        wish_price: int = F(Wishes.price, default=MISSING)
        users: int = F(Ranks.users, default=MISSING)

    derived = [Priced, Cities, Distinct, Firsts, Moves, Living, Wishes, Spending, Ranks]
    return [Orders, Prices, Users], derived, Known


def _count(name: str, window: plain.Continuous | plain.Hopping = FOREVER) -> Aggregated:
    return Aggregated(name, "count", window=window)


def _sum(name: str, of: str, window: plain.Continuous | plain.Hopping = FOREVER) -> Aggregated:
    return Aggregated(name, "sum", of=of, window=window)


_ORDERS, _USERS = Read("Orders"), Read("Users", ("user",))
_PRICED = plain.Join(_ORDERS, Read("Prices", ("item",)), ("item",), inner=False, added=("price",))

DESCRIBED = Described(
    sources=KEYS,
    derived={
        "Priced": plain.Aggregate(
            plain.DropNull(_PRICED, ("price",)),
            ("user",),
            (_sum("total", "price"), _count("soon", SOON)),
        ),
        "Cities": plain.Aggregate(
            plain.Join(_ORDERS, _USERS, ("user",), inner=True, added=("city",)),
            ("city",),
            (_count("n"), _sum("amount", "amount", SOON)),
        ),
        "Distinct": plain.Aggregate(
            plain.Dedup(_ORDERS, ("user", "item"), None), ("user",), (_count("n"), _sum("amount", "amount"))
        ),
        "Firsts": plain.First(_ORDERS, ("user",)),
        "Moves": plain.Aggregate(
            plain.Filter(plain.Changelog(_USERS, "gone", inserts=False), lambda row: row["gone"]),
            ("city",),
            (_count("n"),),
        ),
        "Living": plain.Aggregate(_USERS, ("city",), (_count("n"),)),
        "Wishes": plain.Join(_USERS, Read("Prices", ("item",)), ("item",), inner=False, added=("price",)),
        "Spending": plain.Aggregate(_ORDERS, ("user",), (_count("n", plain.Hopping(5 * SECOND, 5 * SECOND)),)),
        "Ranks": plain.Aggregate(Read("Spending", ("user",)), ("n",), (_count("users"),)),
    },
)


def _feature(name: str, key: str, dataset: str, column: str, default: Any = MISSING) -> Feature:
    return Feature(name, (key,), dataset, column, default)


FEATURES = (
    _feature("total", "user", "Priced", "total"),
    _feature("soon", "user", "Priced", "soon"),
    _feature("orders", "city", "Cities", "n"),
    _feature("amount", "city", "Cities", "amount"),
    _feature("distinct", "user", "Distinct", "n"),
    _feature("distinct_amount", "user", "Distinct", "amount"),
    _feature("first_item", "user", "Firsts", "item", ""),
    _feature("first_amount", "user", "Firsts", "amount"),
    _feature("moves", "city", "Moves", "n"),
    _feature("living", "city", "Living", "n"),
    _feature("wish_city", "user", "Wishes", "city", ""),
    _feature("wish_item", "user", "Wishes", "item", ""),
    _feature("wish_price", "user", "Wishes", "price"),
    _feature("users", "n", "Ranks", "users"),
)
# The features of each user's row of `Wishes`.
WISHES = [feature for feature in FEATURES if feature.dataset == "Wishes"]


@dataclass(frozen=True)
class Batch:
    """The rows of a source that one request logs."""

    source: str
    rows: tuple[Logged, ...]

    def frame(self) -> pd.DataFrame:
        """Return what is logged: rows of events, or envelopes of changes of a table."""
        if not KEYS[self.source]:
            return pd.DataFrame([_event(row) for row in self.rows])
        return pd.DataFrame(
            {
                "op": ["d" if row.deleted else "c" for row in self.rows],
                "before": [_event(row) if row.deleted else None for row in self.rows],
                "after": [None if row.deleted else _event(row) for row in self.rows],
                "ts_ms": [row.time // 1000 for row in self.rows],
            }
        )


def _event(row: Logged) -> dict[str, Any]:
    return row.row | {"at": instant(row.time)}


def instant(time_us: int) -> datetime:
    """Return an instant as a datetime."""
    return EPOCH + timedelta(microseconds=time_us)


def batch(random_: random.Random, now_us: int) -> Batch:
    """Draw some rows of a source that happened before a time; many of them are late."""
    name = random_.choice(["Orders", "Orders", "Prices", "Users"])
    rows = []
    for _ in range(random_.choice([1, 1, 2, 6])):
        time = now_us - round(random_.choice([0, 0.5, 2, 8, 19, 40]) * random_.random() * SECOND)
        # Envelopes of changes tell the time of a deletion in milliseconds.
        time = time // 1000 * 1000
        row: dict[str, Any] = {"user": random_.choice(USERS), "item": random_.choice(ITEMS)}
        if name == "Orders":
            row |= {"amount": random_.randrange(1, 50)}
        elif name == "Prices":
            row = {"item": row["item"], "price": random_.randrange(1, 100)}
        else:
            row |= {"city": random_.choice(CITIES)}
        deleted = name != "Orders" and random_.random() < 0.15
        rows.append(Logged(name, time, row, now_us, deleted))
    return Batch(name, tuple(rows))


def questions(random_: random.Random, asked_us: Sequence[int], each: int) -> list[tuple[plain.Row, int]]:
    """Draw keys to ask for at each time."""
    return [
        (
            {
                "user": random_.choice([*USERS, "eve"]),
                "item": random_.choice(ITEMS),
                "city": random_.choice(CITIES),
                "n": random_.randrange(4),
            },
            at,
        )
        for at in asked_us
        for _ in range(each)
    ]
