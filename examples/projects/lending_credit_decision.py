"""Credit decision: is a loan granted at once, refused, or looked at by a person?

Amounts are decimals throughout, as the ledger has them; what an applicant owes is the sum over a table of loans.
"""

import decimal
from datetime import date, datetime
from typing import Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, index, pipeline
from caraway.dtypes import Decimal, Hopping, oneof, regex
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import expect_column_values_to_not_be_null, expectations, inputs, meta, outputs

__owner__ = "credit@lending.example"

bank = Webhook(name="bank")
ApplicantId = regex("[0-9a-f]{4}")
Employment = oneof(str, ["employed", "free", "none"])


@index
@source(bank.endpoint("applicants"), disorder="1d", cdc="upsert")
@meta(owner="people@lending.example", tags=["pii"])
@dataset(version=2)
class Applicants:
    applicant: ApplicantId = field(key=True, erase_key=True)
    income: Optional[Decimal[2]]  # a month, after taxes
    born: date
    employment: Employment
    told_at: datetime

    @expectations(version=1)
    def most_tell_their_income(cls):
        return [expect_column_values_to_not_be_null(column=str(cls.income), mostly=0.8)]


@source(bank.endpoint("loans"), disorder="1d", cdc="upsert")
@dataset
class Loans:
    loan: int = field(key=True)
    applicant: ApplicantId
    owed: Decimal[2]
    changed_at: datetime


@dataset(offline=True)
class OwedForTraining:
    """What all loans of an applicant come to at the end of an hour; never read in a live query."""

    applicant: ApplicantId = field(key=True)
    owed: Decimal[2]
    loans: int
    changed_at: datetime

    @pipeline
    @inputs(Loans)
    def total(cls, loans: Dataset):
        hourly = Hopping("forever", "1h")
        return loans.groupby("applicant").aggregate(owed=Sum(of="owed", window=hourly), loans=Count(window=hourly))


@featureset
class Request:
    """What the applicant asks for."""

    applicant: ApplicantId
    amount: Decimal[2]


@featureset
class Applicant:
    applicant: ApplicantId = F(Request.applicant)
    income: Optional[Decimal[2]] = F(Applicants.income)
    employment: Optional[Employment] = F(Applicants.employment).meta(description="As told, not checked")
    born: Optional[date] = F(Applicants.born)
    owed: Decimal[2] = F(OwedForTraining.owed, default=decimal.Decimal("0.00"))
    loans: int = F(OwedForTraining.loans, default=0)


@featureset
class Decision:
    income: Decimal[2] = F(Applicant.income, default=decimal.Decimal("0.00"))
    # Two months' income is what a loan and all others may come to.
    decision: oneof(str, ["granted", "refused", "manual"])

    @extractor(version=3)
    @inputs(Request.amount, Applicant.owed, "income", Applicant.employment)
    @outputs("decision")
    def decide(cls, ts, amount, owed, income, employment):
        def one(amount, owed, income, employment):
            if pd.isna(employment) or employment == "free":
                return "manual"
            return "granted" if amount + owed <= 2 * income else "refused"

        return pd.Series(map(one, amount, owed, income, employment), name="decision", dtype="string")


LOGS = [
    ("bank", "applicants", [
        {"applicant": "00a1", "income": "3000.00", "born": "1990-02-03", "employment": "employed",
         "told_at": "2026-01-01"},
        {"applicant": "00b2", "income": None, "born": "1985-12-24", "employment": "none", "told_at": "2026-01-02"},
    ]),
    ("bank", "loans", [
        {"loan": 1, "applicant": "00a1", "owed": "1200.50", "changed_at": "2026-01-02T09:30:00Z"},
        {"loan": 2, "applicant": "00a1", "owed": "300.25", "changed_at": "2026-01-03T09:30:00Z"},
        {"loan": 1, "applicant": "00a1", "owed": "200.50", "changed_at": "2026-01-06T09:30:00Z"},
        {"loan": 3, "applicant": "ffff", "owed": "1.00", "changed_at": "2026-01-08T09:30:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": at,
        "inputs": {"Request.applicant": ["00a1", "00b2", "00c3"], "Request.amount": ["5000.00", "1.00", "1.00"]},
        "outputs": ["Applicant.owed", "Applicant.born", "Decision.decision"],
        "expected": {
            "Applicant.owed": [decimal.Decimal(owed), decimal.Decimal("0.00"), decimal.Decimal("0.00")],
            "Applicant.born": [date(1990, 2, 3), date(1985, 12, 24), None],
            "Decision.decision": [decision, "refused", "manual"],
        },
    }
    for at, owed, decision in [
        ("2026-01-05T12:00:00Z", "1500.75", "refused"),  # 6500.75 of 6000
        ("2026-01-07T12:00:00Z", "500.75", "granted"),  # 5500.75 of 6000
    ]
]
