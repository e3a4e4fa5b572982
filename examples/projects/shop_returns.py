"""Returns: how likely is it that a product comes back, and why?

In production sales come from Kafka and returns from the warehouse's database; elsewhere both come from a webhook.
"""

from datetime import UTC, datetime
from typing import List, Optional

from caraway.connectors import Kafka, Postgres, Webhook, sink, source
from caraway.datasets import Count, Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs

__owner__ = "returns@shop.example"

login = Secret(arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:shop")
kafka = Kafka(
    name="shop_kafka",
    bootstrap_servers="kafka.shop.example:9092",
    security_protocol="SASL_SSL",
    sasl_mechanism="PLAIN",
    sasl_plain_username=login["kafka"]["user"],
    sasl_plain_password=login["kafka"]["password"],
)
warehouse = Postgres(
    name="warehouse",
    host="db.shop.example",
    db_name="warehouse",
    username=login["postgres"]["user"],
    password=login["postgres"]["password"],
)
desk = Webhook(name="desk")


@source(kafka.topic("sales"), disorder="1d", cdc="append", since=datetime(2025, 1, 1, tzinfo=UTC), env="production")
@source(desk.endpoint("sales"), disorder="1d", cdc="append", env="~production")
@dataset
class Sales:
    line: str
    product: int
    sold_at: datetime


@source(warehouse.table("returns", cursor="scanned_at"), disorder="1d", cdc="append", every="15m", env="production")
@source(desk.endpoint("returns"), disorder="1d", cdc="append", env="~production")
@dataset
class Returns:
    line: str
    reason: Optional[str]
    scanned_at: datetime


@dataset
class SoldLines:
    line: str = field(key=True)
    product: int
    sold_at: datetime

    @pipeline
    @inputs(Sales)
    def latest(cls, sales: Dataset):
        return sales.groupby("line").latest()


@sink(kafka.topic("returned"), cdc="debezium", env="production")
@dataset
class ReturnedProducts:
    """Parcels are scanned at each gate: the last scan of a day counts."""

    product: int
    reason: Optional[str]
    scanned_at: datetime

    @pipeline
    @inputs(Returns, SoldLines)
    def of_products(cls, returns: Dataset, lines: Dataset):
        once = returns.dedup("line", window=Tumbling("1d"))
        return once.join(lines, how="inner", on=["line"], within=("100d", "0s")).drop("line")


@dataset(index=True)
class ReturnsByProduct:
    product: int = field(key=True)
    returns_90d: int
    with_reason_90d: int
    reasons: List[str]
    scanned_at: datetime

    @pipeline
    @inputs(ReturnedProducts)
    def by_product(cls, returned: Dataset):
        quarter = Continuous("90d")
        return returned.groupby("product").aggregate(
            returns_90d=Count(window=quarter),
            with_reason_90d=Count(of="reason", dropnull=True, window=quarter),
            reasons=LastK(of="reason", limit=2, dedup=False, dropnull=True, window=quarter),
        )


@dataset(index=True)
class SalesByProduct:
    product: int = field(key=True)
    sales_90d: int
    sold_at: datetime

    @pipeline
    @inputs(Sales)
    def by_product(cls, sales: Dataset):
        return sales.groupby("product").aggregate(sales_90d=Count(window=Continuous("90d")))


@featureset
class Product:
    product: int
    sales_90d: int = F(SalesByProduct.sales_90d, default=0)
    returns_90d: int = F(ReturnsByProduct.returns_90d, default=0)
    with_reason_90d: int = F(ReturnsByProduct.with_reason_90d, default=0)
    reasons: List[str] = F(ReturnsByProduct.reasons, default=[])
    share: Optional[float] = F(when(col("sales_90d") > 0).then(col("returns_90d") / col("sales_90d")))


ENV = "test"
LOGS = [
    ("desk", "sales", [
        {"line": "s1", "product": 1, "sold_at": "2025-12-20"},
        {"line": "s2", "product": 1, "sold_at": "2025-12-21"},
        {"line": "s3", "product": 1, "sold_at": "2025-12-22"},
        {"line": "s4", "product": 1, "sold_at": "2025-12-23"},
        {"line": "s5", "product": 2, "sold_at": "2025-09-01"},
    ]),
    ("desk", "returns", [
        {"line": "s1", "reason": "small", "scanned_at": "2026-01-05T08:00:00Z"},
        {"line": "s1", "reason": "too small", "scanned_at": "2026-01-05T09:00:00Z"},
        {"line": "s2", "reason": None, "scanned_at": "2026-01-06T09:00:00Z"},
        {"line": "s3", "reason": "broken", "scanned_at": "2026-01-06T10:00:00Z"},
        {"line": "s5", "reason": "late", "scanned_at": "2026-01-06T10:00:00Z"},
        {"line": "??", "reason": "odd", "scanned_at": "2026-01-06T10:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # s5 comes back after more than a hundred days.
        "at": "2026-01-07T00:00:00Z",
        "inputs": {"Product.product": [1, 2]},
        "outputs": ["Product.returns_90d", "Product.with_reason_90d", "Product.reasons", "Product.share"],
        "expected": {"Product.returns_90d": [3, 0], "Product.with_reason_90d": [2, 0],
                     "Product.reasons": [["broken", "too small"], []], "Product.share": [0.75, None]},
    },
]  # fmt: skip
