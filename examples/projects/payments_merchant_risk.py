"""Merchant risk: which share of a merchant's sales is held back before it is paid out?

Risky categories and merchants whose sales jump about have to wait; a change of a category's risk counts at once.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Dataset, Quantile, Stddev, dataset, field, pipeline
from caraway.dtypes import Continuous, between, regex, struct
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs, meta

__owner__ = "risk@payments.example"

acquirer = Webhook(name="acquirer", retention="30d")


@struct
class Address:
    """Where a merchant sits."""

    street: str
    city: str
    country: regex("[A-Z]{2}")


@source(acquirer.endpoint("merchants"), disorder="1d", cdc="upsert")
@meta(tags=["pii"], description="Merchants as they signed up")
@dataset
class Merchants:
    merchant: int = field(key=True)
    name: str
    category: regex("[0-9]{4}")
    address: Address
    signed_at: datetime


@source(acquirer.endpoint("categories"), disorder="1d", cdc="upsert")
@dataset
class Categories:
    category: regex("[0-9]{4}") = field(key=True)
    # Share of sales that come back, as the schemes estimate it.
    risk: between(float, 0, 1)
    set_at: datetime


@source(acquirer.endpoint("sales"), disorder="1d", cdc="append")
@dataset
class Sales:
    merchant: int
    euros: float
    sold_at: datetime


@dataset(index=True)
class RatedMerchants:
    """Merchants with the risk of their category: a table joined with a table."""

    merchant: int = field(key=True)
    address: Address
    risk: between(float, 0, 1)
    signed_at: datetime

    @pipeline
    @inputs(Merchants, Categories)
    def rate(cls, merchants: Dataset, categories: Dataset):
        return merchants.join(categories, how="inner", on=["category"]).drop("name", "category")


@dataset(index=True)
class MerchantSales:
    merchant: int = field(key=True)
    mean_30d: float
    spread_30d: Optional[float]
    p90_30d: Optional[float]
    sold_at: datetime

    @pipeline
    @inputs(Sales)
    def by_merchant(cls, sales: Dataset):
        month = Continuous("30d")
        return sales.groupby("merchant").aggregate(
            mean_30d=Average(of="euros", window=month),
            spread_30d=Stddev(of="euros", window=month, default=None),
            p90_30d=Quantile(of="euros", p=0.9, approx=True, window=month),
        )


@featureset
class Payout:
    merchant: int
    address: Optional[Address] = F(RatedMerchants.address)
    country: Optional[str] = F(col("address").struct.get("country"))
    risk: between(float, 0, 1) = F(RatedMerchants.risk, default=0.5)
    mean_30d: float = F(MerchantSales.mean_30d, default=0.0)
    spread_30d: Optional[float] = F(MerchantSales.spread_30d)
    p90_30d: Optional[float] = F(MerchantSales.p90_30d)
    jumpy: bool = F(col("spread_30d").fillnull(0.0) > col("mean_30d") / 4.0)
    held_back: float = F(when(col("jumpy")).then(col("risk") * 2).otherwise(col("risk")))


LOGS = [
    ("acquirer", "merchants", [
        {"merchant": 1, "name": "Zum Hirsch", "category": "5812", "signed_at": "2026-01-01",
         "address": {"street": "Am Markt 1", "city": "Jena", "country": "DE"}},
    ]),
    ("acquirer", "categories", [
        {"category": "5812", "risk": 0.125, "set_at": "2025-12-01"},
        {"category": "5812", "risk": 0.25, "set_at": "2026-01-10"},
    ]),
    ("acquirer", "sales", [
        {"merchant": 1, "euros": 10.0, "sold_at": "2026-01-08T19:00:00Z"},
        {"merchant": 1, "euros": 30.0, "sold_at": "2026-01-09T20:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": at,
        "inputs": {"Payout.merchant": [1, 2]},
        "outputs": ["Payout.country", "Payout.risk", "Payout.mean_30d", "Payout.spread_30d", "Payout.p90_30d",
                    "Payout.held_back"],
        "expected": {
            "Payout.country": ["DE", None],
            "Payout.risk": [risk, 0.5],
            "Payout.mean_30d": [mean, 0.0],
            "Payout.spread_30d": [spread, None],
            "Payout.p90_30d": [p90, None],
            "Payout.held_back": [held, 0.5],
        },
    }
    for at, risk, mean, spread, p90, held in [
        ("2026-01-09T12:00:00Z", 0.125, 10.0, 0.0, 10.0, 0.125),
        ("2026-01-11T12:00:00Z", 0.25, 20.0, 10.0, 30.0, 0.5),
    ]
]  # fmt: skip
