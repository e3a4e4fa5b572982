"""Buy now, pay later: may this customer split one more purchase?

Plans and payments come from the live shop; in other environments from a simulator. What is open is known per day.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Hopping
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "later@payments.example"

shop = Webhook(name="shop")
simulator = Webhook(name="simulator")


@source(shop.endpoint("plans"), disorder="1d", cdc="upsert", env="live")
@source(simulator.endpoint("plans"), disorder="1d", cdc="upsert", env="~live")
@dataset
class Plans:
    plan: int = field(key=True)
    customer: int
    cents: int
    signed_at: datetime


@source(shop.endpoint("payments"), disorder="1d", cdc="append", env=["live", "shadow"])
@source(simulator.endpoint("payments"), disorder="1d", cdc="append", env=["~live", "~shadow"])
@dataset
class Payments:
    plan: int
    cents: int
    paid_at: datetime


@dataset
class PaidByPlan:
    """What was paid for a plan by the end of each day."""

    plan: int = field(key=True)
    paid: int
    paid_at: datetime

    @pipeline
    @inputs(Payments)
    def by_plan(cls, payments: Dataset):
        return payments.groupby("plan").aggregate(paid=Sum(of="cents", window=Hopping("forever", "1d")))


@dataset(index=True)
class PlanStates:
    plan: int = field(key=True)
    customer: int
    cents: int
    paid: Optional[int]
    signed_at: datetime

    @pipeline
    @inputs(Plans, PaidByPlan)
    def with_payments(cls, plans: Dataset, paid: Dataset):
        return plans.join(paid, how="left", on=["plan"])


@dataset(index=True)
class OpenPlans:
    """Plans of a customer that aren't paid: one that is paid leaves the filtered table, and the count."""

    customer: int = field(key=True)
    plans: int
    signed_at: datetime

    @pipeline(env="live")
    @inputs(PlanStates)
    def count(cls, states: Dataset):
        still_open = states.filter(col("paid").fillnull(0) < col("cents"))
        return still_open.groupby("customer").aggregate(plans=Count(window=Hopping("forever", "1d")))

    @pipeline(env="~live")
    @inputs(PlanStates)
    def count_all(cls, states: Dataset):
        return states.groupby("customer").aggregate(plans=Count(window=Hopping("forever", "1d")))


@featureset
class Customer:
    customer: int
    open_plans: int = F(OpenPlans.plans, default=0)
    approved: bool

    @extractor(env="live")
    @inputs("open_plans")
    @outputs("approved")
    def approve(cls, ts, plans):
        return (plans < 2).rename("approved")

    @extractor(env="~live")
    @inputs("open_plans")
    @outputs("approved")
    def approve_everyone(cls, ts, plans):
        return (plans >= 0).rename("approved")


@featureset
class Plan:
    plan: int
    cents: int = F(PlanStates.cents, default=0)
    paid: Optional[int] = F(PlanStates.paid)
    left: int = F(col("cents") - col("paid").fillnull(0))


ENV = "live"
LOGS = [
    ("shop", "plans", [
        {"plan": 1, "customer": 7, "cents": 3000, "signed_at": "2026-01-02T10:00:00Z"},
        {"plan": 2, "customer": 7, "cents": 5000, "signed_at": "2026-01-03T10:00:00Z"},
        {"plan": 3, "customer": 8, "cents": 900, "signed_at": "2026-01-08T10:00:00Z"},
    ]),
    ("shop", "payments", [
        {"plan": 1, "cents": 1000, "paid_at": "2026-01-02T11:00:00Z"},
        {"plan": 1, "cents": 2000, "paid_at": "2026-01-05T11:00:00Z"},
        {"plan": 2, "cents": 100, "paid_at": "2026-01-08T11:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # The first payment shows from midnight of the third on.
        "at": "2026-01-04T12:00:00Z",
        "inputs": {"Plan.plan": [1, 2], "Customer.customer": [7, 8]},
        "outputs": ["Plan.paid", "Plan.left", "Customer.open_plans", "Customer.approved"],
        "expected": {"Plan.paid": [1000, None], "Plan.left": [2000, 5000], "Customer.open_plans": [2, 0],
                     "Customer.approved": [False, True]},
    },
    {  # Plan 1 is paid since midnight of the sixth.
        "at": "2026-01-07T12:00:00Z",
        "inputs": {"Plan.plan": [1, 2], "Customer.customer": [7, 8]},
        "outputs": ["Plan.left", "Customer.open_plans", "Customer.approved"],
        "expected": {"Plan.left": [0, 5000], "Customer.open_plans": [1, 0], "Customer.approved": [True, True]},
    },
]  # fmt: skip
