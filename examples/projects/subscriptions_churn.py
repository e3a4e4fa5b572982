"""Churn: which subscribers get an offer before they leave?

Who pauses, downgrades and comes less often is about to go. The scores of last year's model are being taken away.
"""

from datetime import date, datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Max, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, oneof
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs, meta

__owner__ = "retention@stream.example"

billing = Webhook(name="billing")
Status = oneof(str, ["active", "paused", "ended"])


@source(billing.endpoint("subscriptions"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Subscriptions:
    subscription: int = field(key=True)
    customer: int
    status: Status
    cents: int
    since: date
    changed_at: datetime


@source(billing.endpoint("logins"), disorder="1d", cdc="append")
@dataset
class Logins:
    customer: int
    at: datetime


@dataset(index=True)
class ActiveSubscriptions:
    """What a customer pays for; a subscription that is paused leaves."""

    customer: int = field(key=True)
    active: int
    cents: int
    oldest: date
    changed_at: datetime

    @pipeline
    @inputs(Subscriptions)
    def by_customer(cls, subscriptions: Dataset):
        ever = Continuous("forever")
        return (
            subscriptions.filter(col("status") == "active")
            .groupby("customer")
            .aggregate(
                active=Count(window=ever),
                cents=Sum(of="cents", window=ever),
                oldest=Min(of="since", window=ever, default=date(2100, 1, 1)),
            )
        )


@dataset(index=True)
class Changes:
    """Each change leaves one old version behind."""

    customer: int = field(key=True)
    changes_90d: int
    dearest: int
    changed_at: datetime

    @pipeline
    @inputs(Subscriptions)
    def by_customer(cls, subscriptions: Dataset):
        quarter = Continuous("90d")
        return (
            subscriptions.changelog(delete="old")
            .filter(lambda df: df["old"])
            .groupby("customer")
            .aggregate(changes_90d=Count(window=quarter), dearest=Max(of="cents", window=quarter, default=0))
        )


@dataset(index=True)
class LoginCounts:
    customer: int = field(key=True)
    logins_7d: int
    logins_28d: int
    last_at: Optional[datetime]
    at: datetime

    @pipeline
    @inputs(Logins)
    def by_customer(cls, logins: Dataset):
        return (
            logins.assign(moment=col("at").astype(datetime))
            .groupby("customer")
            .aggregate(
                logins_7d=Count(window=Continuous("1w")),
                logins_28d=Count(window=Continuous("4w")),
                last_at=Max(of="moment", window=Continuous("forever")),
            )
        )


@source(billing.endpoint("old_scores"), disorder="1d", cdc="upsert")
@meta(deleted=True)
@dataset(index=True)
class OldScores:
    customer: int = field(key=True)
    score: float
    at: datetime


@featureset
class Customer:
    customer: int
    active: int = F(ActiveSubscriptions.active, default=0)
    cents: int = F(ActiveSubscriptions.cents, default=0).meta(tags=["revenue"])
    oldest: Optional[date] = F(ActiveSubscriptions.oldest)
    changes_90d: int = F(Changes.changes_90d, default=0).meta(deprecated=True, description="see downgrade")
    dearest: int = F(Changes.dearest, default=0)
    downgrade: bool = F(col("dearest") > col("cents"))
    logins_7d: int = F(LoginCounts.logins_7d, default=0)
    logins_28d: int = F(LoginCounts.logins_28d, default=0)
    last_at: Optional[datetime] = F(LoginCounts.last_at)
    days_silent: Optional[int] = F(now().dt.since(col("last_at"), "day"))
    trend: Optional[float] = F(when(col("logins_28d") > 0).then(col("logins_7d") * 4 / col("logins_28d")))


@meta(deleted=True)
@featureset
class OldChurn:
    customer: int
    score: Optional[float] = F(OldScores.score)


LOGS = [
    ("billing", "subscriptions", [
        {"subscription": 1, "customer": 9, "status": "active", "cents": 1500, "since": "2024-05-01",
         "changed_at": "2025-12-01"},
        {"subscription": 1, "customer": 9, "status": "active", "cents": 900, "since": "2024-05-01",
         "changed_at": "2026-01-03"},
        {"subscription": 2, "customer": 9, "status": "active", "cents": 500, "since": "2023-02-28",
         "changed_at": "2025-12-02"},
        {"subscription": 2, "customer": 9, "status": "paused", "cents": 500, "since": "2023-02-28",
         "changed_at": "2026-01-06"},
    ]),
    ("billing", "logins", [{"customer": 9, "at": f"2026-01-{day:02}T20:00:00Z"} for day in (1, 2, 3, 4)]),
]  # fmt: skip
OUTPUTS = ["Customer.active", "Customer.cents", "Customer.oldest", "Customer.changes_90d", "Customer.downgrade",
           "Customer.logins_7d", "Customer.days_silent", "Customer.trend"]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-05T00:00:00Z",
        "inputs": {"Customer.customer": [9, 8]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [
            [2, 0], [1400, 0], [date(2023, 2, 28), date(2100, 1, 1)], [1, 0], [True, False], [4, 0], [0, None],
            [4.0, None]])),
    },
    {
        "at": "2026-01-10T00:00:00Z",
        "inputs": {"Customer.customer": [9]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[1], [900], [date(2024, 5, 1)], [2], [True], [2], [5], [2.0]])),
    },
]  # fmt: skip
