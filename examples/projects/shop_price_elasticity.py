"""Price elasticity: how many more pieces are sold when a product gets cheaper?

Prices are a table; its changelog gives the steps, and each sale is counted at the price that held.
"""

import math
from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, LastK, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "pricing@shop.example"

erp = Webhook(name="erp")


@source(erp.endpoint("prices"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Prices:
    product: int = field(key=True)
    cents: int
    set_at: datetime


@source(erp.endpoint("sales"), disorder="1d", cdc="append")
@dataset
class Sales:
    product: int
    pieces: int
    sold_at: datetime


@dataset(index=True)
class PriceSteps:
    product: int = field(key=True)
    steps: int
    last_two: List[int]
    set_at: datetime

    @pipeline
    @inputs(Prices)
    def from_changes(cls, prices: Dataset):
        ever = Continuous("forever")
        return (
            prices.changelog(insert="valid")
            .filter(col("valid"))
            .groupby("product")
            .aggregate(
                [
                    Count(window=ever, into_field="steps"),
                    LastK(of="cents", limit=2, dedup=True, window=ever, into_field="last_two"),
                ]
            )
        )


@dataset(index=True)
class SalesAtPrice:
    product: int = field(key=True)
    cents: int = field(key=True)
    pieces: int
    sold_at: datetime

    @pipeline
    @inputs(Sales, Prices)
    def by_price(cls, sales: Dataset, prices: Dataset):
        priced = sales.join(prices, how="inner", left_on=["product"], right_on=["product"])
        return priced.groupby("product", "cents").aggregate(pieces=Sum(of="pieces", window=Continuous("forever")))


@featureset
class Now:
    """At the price that holds: it is looked up, and is a key of the next lookup."""

    product: int
    cents: Optional[int] = F(Prices.cents)
    pieces: Optional[int] = F(SalesAtPrice.pieces)
    last_two: List[int] = F(PriceSteps.last_two, default=[])
    before: Optional[int] = F(col("last_two").list.at(1))


@featureset
class Before:
    """At the price before."""

    product: int = F(Now.product)
    cents: Optional[int] = F(Now.before)
    pieces: Optional[int] = F(SalesAtPrice.pieces)


@featureset
class Elasticity:
    cents: Optional[int] = F(Now.cents)
    pieces: Optional[int] = F(Now.pieces)
    cents_before: Optional[int] = F(Before.cents)
    pieces_before: Optional[int] = F(Before.pieces)
    elasticity: Optional[float] = F(
        (col("pieces") / col("pieces_before")).num.log() / (col("cents") / col("cents_before")).num.log()
    )


# Logarithms differ in their last bit between libraries.
TOLERANCE = 1e-12
LOGS = [
    ("erp", "prices", [
        {"product": 1, "cents": 1000, "set_at": "2026-01-01"},
        {"product": 2, "cents": 500, "set_at": "2026-01-01"},
        {"product": 1, "cents": 800, "set_at": "2026-01-10"},
    ]),
    ("erp", "sales", [
        {"product": 1, "pieces": 1, "sold_at": "2026-01-03"},
        {"product": 1, "pieces": 1, "sold_at": "2026-01-09"},
        {"product": 1, "pieces": 3, "sold_at": "2026-01-10"},
        {"product": 1, "pieces": 1, "sold_at": "2026-01-12"},
        {"product": 2, "pieces": 1, "sold_at": "2026-01-12"},
        {"product": 1, "pieces": 9, "sold_at": "2025-12-30"},  # without a price
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-15T00:00:00Z",
        "inputs": {"Now.product": [1, 2, 3]},
        "outputs": ["Elasticity.pieces", "Elasticity.cents_before", "Elasticity.pieces_before",
                    "Elasticity.elasticity"],
        "expected": {
            "Elasticity.pieces": [4, 1, None],
            "Elasticity.cents_before": [1000, None, None],
            "Elasticity.pieces_before": [2, None, None],
            "Elasticity.elasticity": [math.log(4 / 2) / math.log(800 / 1000), None, None],
        },
    },
    {
        "at": "2026-01-09T12:00:00Z",
        "inputs": {"Now.product": [1]},
        "outputs": ["Now.cents", "Now.pieces", "Now.before"],
        "expected": {"Now.cents": [1000], "Now.pieces": [2], "Now.before": [None]},
    },
]  # fmt: skip
