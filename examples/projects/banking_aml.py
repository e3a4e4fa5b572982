"""Anti-money-laundering: is a customer's cash behaviour reported, watched, or left alone?

Deposits just below the limit of reporting, at many branches, are structuring; names are screened against sanctions.
"""

from datetime import date, datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping, between, oneof
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs, meta

__owner__ = "aml@bank.example"

bank = Webhook(name="aml_bank", retention="14d")
LIMIT_CENTS = 1_000_000


@source(bank.endpoint("persons"), disorder="2d", cdc="upsert")
@meta(tags=["pii", "gdpr"])
@dataset(history="10y")
class Persons:
    person: int = field(key=True, erase_key=True)
    name: str
    born: date
    changed_at: datetime


@source(bank.endpoint("sanctions"), disorder="2d", cdc="upsert")
@dataset
class Sanctions:
    name: str = field(key=True)
    programme: oneof(str, ["EU", "UN"])
    severity: between(int, 1, 9)
    listed_at: datetime


@source(bank.endpoint("deposits"), disorder="2d", cdc="append")
@dataset
class Deposits:
    person: int
    branch: int
    cents: between(int, 0, 10_000_000_000, strict_min=True)
    at: datetime


def clean_names(persons):
    """Spell names as the lists of sanctions do."""
    return persons.assign(name=persons["name"].str.strip().str.upper())


@meta(tags=["~pii"])
@dataset(index=True)
class ScreenedPersons:
    """Persons with the entry of their name; a later entry finds them too."""

    person: int = field(key=True)
    born: date
    programme: Optional[str]
    severity: Optional[int]
    changed_at: datetime

    @pipeline
    @inputs(Persons, Sanctions)
    def screen(cls, persons: Dataset, sanctions: Dataset):
        clean = persons.transform(clean_names)
        return clean.join(sanctions, how="left", left_on=["name"], right_on=["name"]).select(
            "person", "born", "programme", "severity"
        )


@dataset(index=True)
class Structuring:
    """Deposits within a tenth below the limit; one that was sent twice counts once."""

    person: int = field(key=True)
    deposits_30d: int
    branches_30d: int
    at: datetime

    @pipeline
    @inputs(Deposits)
    def just_below(cls, deposits: Dataset):
        month = Continuous("4w 2d")
        return (
            deposits.dedup()
            .filter((col("cents") >= LIMIT_CENTS * 9 // 10) & (col("cents") < LIMIT_CENTS))
            .groupby("person")
            .aggregate(
                deposits_30d=Count(window=month),
                branches_30d=Count(of="branch", unique=True, approx=True, window=month),
            )
        )


@dataset(index=True)
class WeeklyCash:
    """Seven full days, renewed each midnight."""

    person: int = field(key=True)
    euros_7d: float
    at: datetime

    @pipeline
    @inputs(Deposits)
    def by_week(cls, deposits: Dataset):
        return (
            deposits.dedup()
            .assign(euros=(col("cents") / 100).astype(float))
            .groupby("person")
            .aggregate(euros_7d=Sum(of="euros", window=Hopping("7d", "1d")), emit="final")
        )


@featureset
class Person:
    person: int
    programme: Optional[str] = F(ScreenedPersons.programme)
    severity: int = F(ScreenedPersons.severity, default=0)
    deposits_30d: int = F(Structuring.deposits_30d, default=0)
    branches_30d: int = F(Structuring.branches_30d, default=0)
    euros_7d: float = F(WeeklyCash.euros_7d, default=0.0)
    action: oneof(str, ["report", "watch", "none"]) = F(
        when((col("severity") > 5) | ((col("deposits_30d") >= 2) & (col("branches_30d") >= 2)))
        .then("report")
        .when(col("euros_7d") > 10_000)
        .then("watch")
        .otherwise("none")
    )


LOGS = [
    ("aml_bank", "persons", [
        {"person": 1, "name": " Max Muster", "born": "1970-01-01", "changed_at": "2025-06-01"},
        {"person": 2, "name": "Ida Ide", "born": "1980-01-01", "changed_at": "2025-06-01"},
        {"person": 3, "name": "Jo Jott", "born": "1990-01-01", "changed_at": "2025-06-01"},
    ]),
    ("aml_bank", "sanctions", [
        {"name": "IDA IDE", "programme": "UN", "severity": 7, "listed_at": "2026-01-06"},
    ]),
    ("aml_bank", "deposits", [
        {"person": 1, "branch": 1, "cents": 950_000, "at": "2026-01-02T09:00:00Z"},
        {"person": 1, "branch": 2, "cents": 990_000, "at": "2026-01-03T09:00:00Z"},
        {"person": 1, "branch": 2, "cents": 990_000, "at": "2026-01-03T09:00:00Z"},
        {"person": 1, "branch": 3, "cents": 500_000, "at": "2026-01-04T09:00:00Z"},
        {"person": 3, "branch": 1, "cents": 1_000_001, "at": "2026-01-04T10:00:00Z"},
        {"person": 3, "branch": 1, "cents": 100, "at": "2026-01-08T09:00:00Z"},
    ]),
]  # fmt: skip
OUTPUTS = ["Person.programme", "Person.deposits_30d", "Person.branches_30d", "Person.euros_7d", "Person.action"]
ASKS = [
    {  # One deposit was sent twice; a week of cash ends at this midnight.
        "at": "2026-01-05T00:00:00Z",
        "inputs": {"Person.person": [1, 2, 3]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [
            [None, None, None], [2, 0, 0], [2, 0, 0], [24400.0, 0.0, 10000.01], ["report", "none", "watch"]])),
    },
    {
        "at": "2026-01-08T12:00:00Z",
        "inputs": {"Person.person": [1, 2, 3]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [
            [None, "UN", None], [2, 0, 0], [2, 0, 0], [24400.0, 0.0, 10000.01], ["report", "report", "watch"]])),
    },
]  # fmt: skip
