"""Repayment behaviour: who should be called before the next instalment is missed?

Instalments count at the day when they were due, not when they were booked.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "collections@lending.example"

ledger = Webhook(name="ledger")


@source(ledger.endpoint("instalments"), disorder="30d", cdc="append")
@dataset
class Instalments:
    loan: int
    due: datetime
    paid: Optional[datetime]
    cents: int
    booked_at: datetime = field(timestamp=True)


def lateness(instalments):
    """Add the days between due and paid; what isn't paid is late until it was booked."""
    settled = instalments["paid"].fillna(instalments["booked_at"])
    days = (settled - instalments["due"]).dt.days.clip(lower=0)
    return instalments.drop(columns=["paid"]).assign(days_late=days)


@dataset(index=True)
class Punctuality:
    loan: int = field(key=True)
    instalments_90d: int
    mean_days_late_90d: float
    worst_90d: int
    booked_at: datetime

    @pipeline
    @inputs(Instalments)
    def by_due_date(cls, instalments: Dataset):
        quarter = Continuous("90d")
        schema = {"loan": int, "due": datetime, "cents": int, "days_late": int, "booked_at": datetime}
        return (
            instalments.transform(lateness, schema=schema)
            .groupby("loan")
            .aggregate(
                instalments_90d=Count(window=quarter),
                mean_days_late_90d=Average(of="days_late", window=quarter),
                worst_90d=Max(of="days_late", window=quarter, default=0),
                along="due",
            )
        )


@dataset(index=True)
class WeeklyPayments:
    """What came in during the last full week."""

    loan: int = field(key=True)
    cents: int
    first_paid: Optional[datetime]
    booked_at: datetime

    @pipeline
    @inputs(Instalments)
    def by_week(cls, instalments: Dataset):
        week = Tumbling("7d")
        paid = instalments.dropnull("paid")
        return paid.groupby("loan").aggregate(
            Sum(of="cents", window=week, into_field="cents"),
            Min(of="paid", window=week, into_field="first_paid"),
        )


@featureset
class Loan:
    loan: int
    instalments_90d: int = F(Punctuality.instalments_90d, default=0)
    mean_days_late_90d: float = F(Punctuality.mean_days_late_90d, default=0.0)
    worst_90d: int = F(Punctuality.worst_90d, default=0)
    cents_last_week: int = F(WeeklyPayments.cents, default=0)
    first_paid: Optional[datetime] = F(WeeklyPayments.first_paid)
    to_call: bool = F((col("mean_days_late_90d").round(1) > 10.0) | (col("worst_90d") >= 30))


LOGS = [
    ("ledger", "instalments", [
        {"loan": 1, "due": "2025-12-01", "paid": "2026-01-03", "cents": 250, "booked_at": "2026-01-03T08:00:00Z"},
        {"loan": 1, "due": "2026-01-01", "paid": "2026-01-01T10:00:00Z", "cents": 100, "booked_at": "2026-01-02"},
        {"loan": 1, "due": "2026-01-08", "paid": None, "cents": 100, "booked_at": "2026-01-12"},
        {"loan": 2, "due": "2026-01-08", "paid": "2026-01-09", "cents": 70, "booked_at": "2026-01-09T08:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # 33 days and 0 days
        "at": "2026-01-05T00:00:00Z",
        "inputs": {"Loan.loan": [1]},
        "outputs": ["Loan.instalments_90d", "Loan.mean_days_late_90d", "Loan.worst_90d", "Loan.to_call"],
        "expected": {"Loan.instalments_90d": [2], "Loan.mean_days_late_90d": [16.5], "Loan.worst_90d": [33],
                     "Loan.to_call": [True]},
    },
    {  # The week ended on the 8th, a Thursday, as weeks since the epoch do. The last of loan 1 is four days late.
        "at": "2026-01-13T00:00:00Z",
        "inputs": {"Loan.loan": [1, 2]},
        "outputs": ["Loan.mean_days_late_90d", "Loan.cents_last_week", "Loan.first_paid", "Loan.to_call"],
        "expected": {
            "Loan.mean_days_late_90d": [37 / 3, 1.0],
            "Loan.cents_last_week": [350, 0],
            "Loan.first_paid": [datetime.fromisoformat("2026-01-01T10:00:00Z"), None],
            "Loan.to_call": [True, False],
        },
    },
]  # fmt: skip
