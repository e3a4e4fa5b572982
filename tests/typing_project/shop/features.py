"""Featuresets, everything annotated."""

import decimal
from typing import Annotated, List, Optional, Tuple

import pandas as pd

from caraway import F as AlsoF
from caraway.dtypes import Decimal, Embedding, between
from caraway.expr import col, now
from caraway.featuresets import Feature, Featureset, extractor, feature, featureset
from caraway.featuresets import feature as F
from caraway.lib import includes, inputs, meta, outputs
from shop.definitions import Address, LastOrder, Products, Spending, Users


@featureset
class Request:
    user: int
    limit: float = feature()


def capped(amounts: "pd.Series[float]", limit: float) -> "pd.Series[float]":
    return amounts.clip(upper=limit)


@meta(owner="features@example.com")
@featureset
class Shopper:
    user: int = F(Request.user)
    country: Optional[str] = F(Users.country)
    # what was spent in a week
    spent: float = F(Spending.spent_7d, default=0.0)
    mean: Optional[float] = F(Spending.mean_7d, version=2)
    newest: List[str] = AlsoF(Spending.newest, default=[], env="prod")
    product: str = F(LastOrder.product, default="").meta(description="what was ordered last")
    stars: Optional[Annotated[int, between(int, 1, 5)]]
    rich: bool = F((col("spent") > 1000.0) | (col("mean").fillnull(0.0) > 100.0))
    more: float = F(col("spent") + 1)
    hour: int = F(now().dt.hour)
    score: float
    twice: float
    half: float

    @extractor(deps=[Products], version=1, env=["prod", "dev"])
    @includes(capped)
    @inputs("spent", "product")
    @outputs("score")
    def rate(
        cls, ts: "pd.Series[pd.Timestamp]", spent: "pd.Series[float]", product: "pd.Series[str]"
    ) -> "pd.Series[float]":
        rows, found = Products.lookup(ts, product=product, fields=["price"])
        prices = rows["price"].where(found, 0).astype(float)
        return capped(spent / (1.0 + prices), limit=10.0).rename("score")

    @meta(description="two at once")
    @extractor
    @inputs(Request.limit, "spent")
    @outputs("twice", "half")
    def both(cls, ts: "pd.Series[pd.Timestamp]", limit: "pd.Series[float]", spent: "pd.Series[float]") -> pd.DataFrame:
        return pd.DataFrame({"twice": (spent * 2).clip(upper=limit), "half": spent / 2})

    @extractor
    @outputs("stars")
    def no_stars(cls, ts: "pd.Series[pd.Timestamp]") -> "pd.Series[int]":
        return pd.Series([None] * len(ts), name="stars", dtype="Int64")


@featureset
class Item:
    product: str
    maker: Optional[Address] = F(Products.maker)
    price: Annotated[decimal.Decimal, Decimal[2]] = F(Products.price, default=decimal.Decimal("0.00"))
    vector: Optional[Annotated[List[float], Embedding[4]]] = F(Products.vector)


def described(item: Feature) -> Tuple[str, str]:
    return item.fqn(), item.desc()


def names(found: Featureset) -> List[str]:
    return [f.name for f in found.features]


user: Feature = Request.user
all_of_them: List[Feature] = Shopper.all()
their_names: List[str] = names(Shopper) + [item.name for item in Item.features]
texts: Tuple[str, str] = described(Shopper.score)
computed = Shopper.both(Shopper, pd.Series([pd.Timestamp(0)]), pd.Series([1.0]), pd.Series([2.0]))
