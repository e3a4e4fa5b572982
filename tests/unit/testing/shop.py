"""Definitions that the tests of the mock client share: users, their orders, and datasets computed from both."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, call-arg, arg-type"

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Optional

import pandas as pd

from caraway import F, dataset, extractor, featureset, field, pipeline
from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, index
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.lib import inputs, outputs, secrets
from caraway.testing import MockClient

__owner__ = "shop@example.com"

hook = Webhook(name="shop")
T0 = datetime(2024, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@source(hook.endpoint("users"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Users:
    user: int = field(key=True, erase_key=True)
    name: str
    city: Optional[str]
    at: datetime


@source(hook.endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Orders:
    user: int
    amount: float
    at: datetime


@dataset(index=True)
class Spending:
    user: int = field(key=True)
    mean: float
    orders: int
    at: datetime

    @pipeline
    @inputs(Orders)
    def aggregate(cls, orders: Dataset):
        return orders.groupby("user").aggregate(
            mean=Average(of="amount", window=Continuous("1d"), default=-1.0),
            orders=Count(window=Continuous("forever")),
        )


@source(hook.endpoint("notes"), disorder="1d", cdc="upsert")
@index(online=True, offline=None)
@dataset
class OnlineNotes:
    user: int = field(key=True)
    note: str
    at: datetime


@source(hook.endpoint("notes"), disorder="1d", cdc="upsert")
@index(online=False)
@dataset
class OfflineNotes:
    user: int = field(key=True)
    note: str
    at: datetime


@featureset
class Request:
    user: int
    limit: Optional[float]


@featureset
class Buyer:
    user: int = F(Request.user)
    name: str = F(Users.name, default="nobody")
    city: Optional[str] = F(Users.city)
    mean: Optional[float] = F(Spending.mean)
    orders: int = F(Spending.orders, default=0)
    is_regular: bool = F(col("orders") >= 2)
    greeting: str
    is_rich: bool

    @extractor
    @inputs("name")
    @outputs("greeting")
    def greet(cls, ts, name):
        return ("Hello " + name).rename("greeting")

    @extractor
    @inputs("mean", Request.limit)
    @outputs("is_rich")
    def judge(cls, ts, mean, limit):
        return pd.Series((mean.fillna(0.0) > limit.fillna(10.0)).to_numpy(dtype=bool), name="is_rich")


@featureset
class Notes:
    user: int = F(Request.user)
    online: Optional[str] = F(OnlineNotes.note)


@featureset
class OldNotes:
    user: int = F(Request.user)
    offline: Optional[str] = F(OfflineNotes.note)


@featureset
class Vault:
    user: int
    opened: str

    @extractor
    @inputs("user")
    @outputs("opened")
    def open(cls, ts, user):
        return pd.Series([secrets.get("key")] * len(user), name="opened")


DATASETS = [Users, Orders, Spending]
FEATURESETS = [Request, Buyer]


def users(*rows: tuple[int, str, str | None, datetime]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user", "name", "city", "at"])


def orders(*rows: tuple[int, float, datetime]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user", "amount", "at"])


def commit(client: MockClient, *more: Any) -> None:
    client.commit("shop", DATASETS, [*FEATURESETS, *more])


def committed(datasets: Sequence[Any] = (), featuresets: Sequence[Any] = (), **options: Any) -> MockClient:
    """Return a client whose main branch has these definitions."""
    client = MockClient()
    client.commit("definitions", list(datasets), list(featuresets), **options)
    return client


def filled() -> MockClient:
    client = MockClient()
    commit(client)
    client.log("shop", "users", users((1, "Ann", "Rome", T0), (2, "Bob", None, T0), (1, "Anna", "Oslo", T0 + 2 * HOUR)))
    client.log("shop", "orders", orders((1, 10.0, T0), (1, 30.0, T0 + HOUR), (2, 5.0, T0)))
    return client
