"""A/B experiments: may this experiment be ended, and who has won?

A user stays in the arm of the first exposure; only orders after it count. While an experiment is blind, nobody sees
its uplift.
"""

from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, FirstK, Stddev, dataset, field, pipeline
from caraway.dtypes import Continuous, oneof
from caraway.expr import col, lit
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "experiments@shop.example"

web = Webhook(name="experiments_web")
Variant = oneof(str, ["control", "treatment"])
EVER = Continuous("forever")


@source(web.endpoint("exposures"), disorder="1d", cdc="append")
@dataset
class Exposures:
    user: str
    experiment: str
    variant: Variant
    at: datetime


@source(web.endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Orders:
    user: str
    cents: int
    at: datetime


@dataset(index=True)
class Assignments:
    user: str = field(key=True)
    experiment: str = field(key=True)
    variant: Variant
    at: datetime

    @pipeline
    @inputs(Exposures)
    def first_exposure(cls, exposures: Dataset):
        return exposures.groupby("user", "experiment").first()


@dataset(index=True)
class Arms:
    experiment: str = field(key=True)
    variant: Variant = field(key=True)
    users: int
    at: datetime

    @pipeline
    @inputs(Assignments)
    def count(cls, assignments: Dataset):
        return assignments.groupby("experiment", "variant").aggregate(users=Count(window=EVER))


@dataset(index=True)
class CheckoutOrders:
    experiment: str = field(key=True)
    variant: Variant = field(key=True)
    orders: int
    mean: float
    spread: float
    first_orders: List[int]
    at: datetime

    @pipeline
    @inputs(Orders, Assignments)
    def by_variant(cls, orders: Dataset, assignments: Dataset):
        return (
            orders.assign(experiment=lit("checkout").astype(str))
            .join(assignments, how="inner", on=["user", "experiment"])
            .groupby("experiment", "variant")
            .aggregate(
                orders=Count(window=EVER),
                mean=Average(of="cents", window=EVER),
                spread=Stddev(of="cents", window=EVER),
                first_orders=FirstK(of="cents", limit=1, dedup=False, dropnull=False, window=EVER),
            )
        )


@featureset
class Arm:
    experiment: str
    variant: Variant
    users: int = F(Arms.users, default=0)
    orders: int = F(CheckoutOrders.orders, default=0)
    mean: float = F(CheckoutOrders.mean, default=0.0)
    spread: float = F(CheckoutOrders.spread, default=-1.0)
    first_orders: List[int] = F(CheckoutOrders.first_orders, default=[])
    orders_each: Optional[float] = F(col("orders") / col("users"))


@featureset
class Comparison:
    experiment: str
    uplift: Optional[float]
    decided: bool = F(col("uplift").fillnull(0.0).abs() > 0.1, env="live")

    @extractor(deps=[CheckoutOrders], env="live")
    @inputs("experiment")
    @outputs("uplift")
    def compare(cls, ts, experiment):
        def mean(variant):
            arm = pd.Series([variant] * len(ts))
            return CheckoutOrders.lookup(ts, experiment=experiment, variant=arm, fields=["mean", "orders"])[0]

        control, treatment = mean("control"), mean("treatment")
        both = (control["orders"].fillna(0) > 0) & (treatment["orders"].fillna(0) > 0)
        return (treatment["mean"] / control["mean"] - 1.0).where(both).astype("Float64").rename("uplift")

    @extractor(env="blind")
    @inputs("experiment")
    @outputs("uplift")
    def nothing(cls, ts, experiment):
        return pd.Series([None] * len(ts), name="uplift", dtype="Float64")


ENV = "live"
LOGS = [
    ("experiments_web", "exposures", [
        {"user": "a", "experiment": "checkout", "variant": "control", "at": "2026-01-01"},
        {"user": "a", "experiment": "checkout", "variant": "treatment", "at": "2026-01-03"},
        {"user": "b", "experiment": "checkout", "variant": "treatment", "at": "2026-01-01"},
        {"user": "c", "experiment": "checkout", "variant": "control", "at": "2026-01-03"},
    ]),
    ("experiments_web", "orders", [
        {"user": "a", "cents": 1000, "at": "2026-01-02"},
        {"user": "a", "cents": 3000, "at": "2026-01-04"},
        {"user": "b", "cents": 3000, "at": "2026-01-02"},
        {"user": "c", "cents": 500, "at": "2026-01-02"},
        {"user": "d", "cents": 1, "at": "2026-01-02"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": at,
        "inputs": {"Arm.experiment": ["checkout"] * 2, "Arm.variant": ["control", "treatment"],
                   "Comparison.experiment": ["checkout", "home"]},
        "outputs": ["Arm.users", "Arm.orders", "Arm.mean", "Arm.spread", "Arm.first_orders", "Arm.orders_each",
                    "Comparison.uplift", "Comparison.decided"],
        "expected": {
            "Arm.users": [users, 1],
            "Arm.orders": [orders, 1],
            "Arm.mean": [mean, 3000.0],
            "Arm.spread": [spread, 0.0],
            "Arm.first_orders": [[1000], [3000]],
            "Arm.orders_each": [orders / users, 1.0],
            "Comparison.uplift": [uplift, None],
            "Comparison.decided": [True, False],
        },
    }
    for at, users, orders, mean, spread, uplift in [
        ("2026-01-02T12:00:00Z", 1, 1, 1000.0, 0.0, 2.0),
        ("2026-01-05T00:00:00Z", 2, 2, 2000.0, 1000.0, 0.5),
    ]
]  # fmt: skip
