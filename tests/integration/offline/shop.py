"""Purchases and customers: datasets whose history is asked for as of the past."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc"

from datetime import UTC, datetime, timedelta
from typing import Any, Optional

import numpy as np
import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, LastK, Max, Stddev, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import Featureset, extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "offline@example.com"

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = 400
USERS = 12


def definitions(version: int) -> tuple[list[Dataset], list[Featureset]]:
    """Define the datasets; topics of different versions have different names, since all tests share a broker."""
    hook = Webhook(name="shop")

    @source(hook.endpoint("purchases"), disorder="14d", cdc="append")
    @dataset(index=False, version=version)
    class Purchases:
        user: int
        price: Optional[float]
        item: str
        at: datetime

    @source(hook.endpoint("users"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class Users:
        user: int = field(key=True, erase_key=True)
        city: str
        age: Optional[int]
        friend: Optional[int]
        at: datetime

    @dataset(index=True, version=version)
    class Spending:
        user: int = field(key=True)
        n: int
        total_1h: float
        mean: float
        spread: float
        most: float
        last: list[str]
        at: datetime

        @pipeline
        @inputs(Purchases)
        def make(cls: Any, purchases: Any) -> Any:
            return (
                purchases.dropnull("price")
                .filter(col("price") > 1.0)
                .groupby("user")
                .aggregate(
                    n=Count(window=Continuous("forever")),
                    total_1h=Sum(of="price", window=Continuous("1h")),
                    mean=Average(of="price", window=Continuous("6h"), default=-1.0),
                    spread=Stddev(of="price", window=Continuous("1d"), default=-1.0),
                    most=Max(of="price", window=Continuous("forever"), default=0.0),
                    last=LastK(of="item", limit=3, dedup=False, window=Continuous("1d")),
                )
            )

    @featureset
    class Buyer:
        user: int
        age: int = F(Users.age, default=-1)
        city: Optional[str] = F(Users.city)
        friend: Optional[int] = F(Users.friend)
        n: int = F(Spending.n, default=0)
        total_1h: Optional[float] = F(Spending.total_1h)
        mean: Optional[float] = F(Spending.mean)
        spread: Optional[float] = F(Spending.spread)
        most: Optional[float] = F(Spending.most)
        last: Optional[list[str]] = F(Spending.last)
        rich: bool = F(col("total_1h").fillnull(0.0) > 50.0)
        per_year: float

        @extractor
        @inputs("n", "age")
        @outputs("per_year")
        def yearly(cls: Any, ts: Any, n: Any, age: Any) -> Any:
            if (age == 77).any():
                raise ValueError("nobody is 77")
            return (n.astype(float) / age.astype(float).clip(lower=1)).rename("per_year")

    @featureset
    class Friend:
        # A buyer may have no friend, and a friend may be nobody whom the datasets know.
        user: Optional[int] = F(Buyer.friend)
        age: int = F(Users.age, default=-1)
        city: Optional[str] = F(Users.city)
        n: int = F(Spending.n, default=0)
        mean: Optional[float] = F(Spending.mean)
        most: Optional[float] = F(Spending.most)
        known: int = F(Buyer.friend, default=-7)

    return [Purchases, Users, Spending], [Buyer, Friend]


def logged() -> dict[str, pd.DataFrame]:
    """Return the rows of both sources, some of them late."""
    rng = np.random.default_rng(7)
    minutes = np.sort(rng.integers(0, 3000, ROWS))
    minutes[::17] -= rng.integers(0, 600, len(minutes[::17]))
    price = np.round(rng.lognormal(2, 1, ROWS), 2)
    purchases = pd.DataFrame(
        {
            "user": rng.integers(0, USERS, ROWS),
            "price": pd.array(np.where(np.arange(ROWS) % 31 == 0, np.nan, price), dtype="Float64"),
            "item": [f"i{n % 9}" for n in range(ROWS)],
            "at": [BEGIN + timedelta(minutes=int(m)) for m in minutes],
        }
    )
    users = pd.DataFrame(
        {
            "user": [n % USERS for n in range(3 * USERS)],
            "city": [f"c{n % 5}" for n in range(3 * USERS)],
            "age": pd.array([None if n % 7 == 0 else 20 + n for n in range(3 * USERS)], dtype="Int64"),
            "friend": pd.array([None if n % 3 == 0 else n * 5 % 17 for n in range(3 * USERS)], dtype="Int64"),
            "at": [BEGIN + timedelta(minutes=n * 53) for n in range(3 * USERS)],
        }
    )
    return {"purchases": purchases, "users": users}


def asked(rows: int) -> pd.DataFrame:
    """Return rows that ask for users, also for ones that never came, at times before, amid and after the history."""
    rng = np.random.default_rng(11)
    frame: dict[str, Any] = {
        "Buyer.user": rng.integers(-1, USERS + 2, rows),
        "at": [BEGIN + timedelta(minutes=int(m)) for m in rng.integers(-200, 5000, rows)],
        "label": rng.random(rows),
    }
    return pd.DataFrame(frame)
