"""Datasets and pipelines as a careful user writes them, everything annotated."""

import decimal
from datetime import UTC, datetime
from typing import Annotated, Dict, List, Optional

import pandas as pd

from caraway.connectors import Kafka, Webhook, eval, ref, sink, source
from caraway.datasets import (
    Average,
    Count,
    Dataset,
    Distinct,
    ExpDecaySum,
    Field,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    dataset,
    field,
    index,
    pipeline,
)
from caraway.dtypes import (
    Continuous,
    Decimal,
    Embedding,
    Hopping,
    Session,
    Struct,
    Tumbling,
    Window,
    between,
    oneof,
    regex,
    struct,
)
from caraway.expr import Expr, col, lit, when
from caraway.lib import (
    expect_column_values_to_be_between,
    expect_column_values_to_not_be_null,
    expectations,
    includes,
    inputs,
    meta,
)

__owner__ = "shop@example.com"

shop = Webhook(name="shop", retention="14d")
brokers = Kafka(name="brokers", bootstrap_servers="b:9092", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")


@struct
class Address:
    street: str
    zip_code: Annotated[str, regex("[0-9]{5}")]


@struct
class Place(Struct):
    latitude: float
    longitude: float


home = Address(street="High Street", zip_code="12345")
here = Place(52.5, 13.4)


@source(shop.endpoint("orders"), disorder="1d", cdc="append", env="prod")
@source(
    brokers.topic("orders"),
    disorder="1d",
    cdc="append",
    env=["staging", "dev"],
    since=datetime(2024, 1, 1, tzinfo=UTC),
    preproc={
        "channel": "web",
        "amount": eval(col("cents") / 100.0, schema={"cents": int}),
        "user": ref("customer"),
        "stars": eval(lambda df: df["rating"], schema={"rating": int}),
    },
    where=eval(col("amount") > 0.0),
    sample=0.5,
)
@dataset
class Orders:
    user: int
    product: str
    amount: float
    stars: Optional[Annotated[int, between(int, 1, 5)]]
    channel: Annotated[str, oneof(str, ["web", "app"])]
    tags: List[str]
    at: datetime

    @expectations
    def sane(cls) -> List[object]:
        return [
            expect_column_values_to_not_be_null(column="user"),
            expect_column_values_to_be_between(column=str(cls.amount), min_value=0, mostly=0.99),
        ]


@meta(owner="catalogue@example.com", description="The catalogue as it is", tags=["core"])
@source(shop.endpoint("products"), disorder="1d", cdc="upsert")
@dataset(index=True, version=2, history="1y")
class Products:
    product: str = field(key=True)
    kind: str = field().meta(description="what it is")
    price: Annotated[decimal.Decimal, Decimal[2]]
    vector: Annotated[List[float], Embedding[4]]
    sizes: Dict[str, int]
    maker: Optional[Address]
    place: Place
    listed: datetime = field(timestamp=True)
    renewed: datetime


@index
@dataset
@source(shop.endpoint("users"), disorder="1d", cdc="upsert")
@meta(owner="people@example.com")
class Users:
    user: int = field(key=True, erase_key=True)
    country: str
    joined: datetime


def _capped(df: pd.DataFrame) -> "pd.Series[float]":
    return df["amount"].clip(upper=1000.0)


@index(type="primary", online=True, offline=None)
@dataset
class Spending:
    user: int = field(key=True)
    orders_1h: int
    spent_7d: float
    mean_7d: Optional[float]
    spread: float
    best: Optional[int]
    worst: int
    median: Optional[float]
    faded: float
    products: List[str]
    newest: List[str]
    oldest: List[str]
    at: datetime

    @pipeline
    @inputs(Orders)
    def by_user(cls, orders: Dataset) -> Dataset:
        week = Continuous("7d")
        forever = Continuous("forever")
        return (
            orders.filter(col("amount") > 0.0)
            .filter(lambda df: df["amount"] < 1_000_000)
            .groupby("user")
            .aggregate(
                orders_1h=Count(window=Continuous("1h")),
                spent_7d=Sum(of="amount", window=week),
                mean_7d=Average(of=Orders.amount, window=week, default=None),
                spread=Stddev(of="amount", window=forever),
                best=Max(of="stars", window=forever),
                worst=Min(of="stars", window=forever, default=0),
                median=Quantile(of="amount", window=week, p=0.5, approx=True),
                faded=ExpDecaySum(of="amount", window=week, half_life="1d"),
                products=Distinct(of="product", window=week, unordered=True),
                newest=LastK(of="product", window=week, limit=5, dedup=True),
                oldest=FirstK(of="product", window=week, limit=5, dedup=True, dropnull=False),
            )
        )


@dataset(index=True)
class LastOrder:
    user: int = field(key=True)
    product: str
    kind: Optional[str]
    amount: float
    size: str
    at: datetime

    @pipeline(env=["~dev"])
    @includes(_capped)
    @inputs(Orders, Products)
    def newest(cls, orders: Dataset, products: Dataset) -> Dataset:
        size = when(col("amount") >= 100.0).then(lit("large")).otherwise("small")
        joined = orders.join(products, how="left", on=["product"], fields=["kind"], within=("forever", "0s"))
        return (
            joined.assign("amount", float, _capped)
            .assign(size=size.astype(str))
            .drop("stars", "channel", "tags")
            .groupby("user")
            .latest()
        )


@sink(brokers.topic("visits"), cdc="debezium")
@dataset
class Visits:
    user: int = field(key=True)
    window: Window = field(key=True)
    orders: int
    at: datetime

    @pipeline
    @inputs(Orders)
    def sessions(cls, orders: Dataset) -> Dataset:
        return orders.groupby(orders.user, window=Session("30m")).aggregate(orders=Count())


@dataset
class Tags:
    user: int
    tag: Optional[str]
    at: datetime

    @pipeline
    @inputs(Orders)
    def exploded(cls, orders: Dataset) -> Dataset:
        orders = orders.select("user", "tags")
        orders = orders.explode("tags").rename({"tags": "tag"})
        return orders + orders.dedup("user", window=Tumbling("1d")).dedup(by=["user", "tag"])


@dataset
class Weeks:
    user: int = field(key=True)
    spent: float
    at: datetime

    @meta(owner="reports@example.com")
    @pipeline
    @inputs(Orders)
    def weekly(cls, orders: Dataset) -> Dataset:
        week = Hopping("7d", "1d", lookback="1h")
        return orders.groupby(["user"]).aggregate([Sum(of="amount", window=week, into_field="spent")], emit="eager")


def loud(column: Field) -> Expr:
    return col(column.name).str.upper() + "!"


steps: Dataset = Orders.filter(col("amount") > 1).dropnull("stars")
schema = Orders.schema()
names: List[str] = [f.name for f in Orders.fields]
keys: List[str] = Users.key_fields
everything = [Orders, Products, Users, Spending, LastOrder, Visits, Tags, Weeks]
shouted: Expr = loud(Orders.product)
