"""Money mules: does an account pass on what it gets, to people it has never paid before?

Incoming and outgoing transfers become one stream of movements; recent money weighs more than old money.
"""

from datetime import datetime
from typing import List

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Distinct, ExpDecaySum, FirstK, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, lit
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "mules@payments.example"

rails = Webhook(name="rails")


@source(rails.endpoint("transfers"), disorder="2d", cdc="append")
@dataset
class Transfers:
    payer: str
    payee: str
    euros: float
    at: datetime


@dataset
class Movements:
    """Each transfer twice: once for each side."""

    account: str
    other: str
    euros: float
    incoming: bool
    at: datetime

    @pipeline
    @inputs(Transfers)
    def both_sides(cls, transfers: Dataset):
        got = transfers.rename({"payee": "account", "payer": "other"}).assign(incoming=lit(True).astype(bool))
        sent = transfers.rename({"payer": "account", "payee": "other"}).assign(incoming=lit(False).astype(bool))
        return got + sent


@dataset(index=True)
class Received:
    account: str = field(key=True)
    warm_euros: float
    senders: List[str]
    first_senders: List[str]
    at: datetime

    @pipeline
    @inputs(Movements)
    def by_account(cls, movements: Dataset):
        week = Continuous("7d")
        return (
            movements.filter(col("incoming"))
            .groupby("account")
            .aggregate(
                warm_euros=ExpDecaySum(of="euros", half_life="1d", window=week),
                senders=Distinct(of="other", unordered=True, window=week),
                first_senders=FirstK(of="other", limit=2, dedup=True, dropnull=False, window=Continuous("forever")),
            )
        )


@dataset(index=True)
class PassedOn:
    account: str = field(key=True)
    warm_euros: float
    payments_7d: int
    at: datetime

    @pipeline
    @inputs(Movements)
    def by_account(cls, movements: Dataset):
        return (
            movements.filter(~col("incoming"))
            .groupby("account")
            .aggregate(
                warm_euros=ExpDecaySum(of="euros", half_life="1d", window=Continuous("7d")),
                payments_7d=Count(window=Continuous("7d")),
            )
        )


@featureset
class Mule:
    account: str
    received: float = F(Received.warm_euros, default=0.0)
    senders: List[str] = F(Received.senders, default=[])
    first_senders: List[str] = F(Received.first_senders, default=[])
    passed_on: float = F(PassedOn.warm_euros, default=0.0)
    payments_7d: int = F(PassedOn.payments_7d, default=0)
    suspicion: float = F(col("passed_on") / (col("received") + 1.0))


# Powers of a half are computed by exp.
TOLERANCE = 1e-9
LOGS = [
    ("rails", "transfers", [
        {"payer": "ann", "payee": "mia", "euros": 64.0, "at": "2026-01-03T12:00:00Z"},
        {"payer": "bob", "payee": "mia", "euros": 15.0, "at": "2026-01-05T12:00:00Z"},
        {"payer": "ann", "payee": "mia", "euros": 8.0, "at": "2026-01-04T12:00:00Z"},
        {"payer": "mia", "payee": "zoe", "euros": 72.0, "at": "2026-01-04T12:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # Received: 64 / 4 + 8 / 2 + 15 = 35, passed on: 72 / 2 = 36.
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Mule.account": ["mia", "ann", "new"]},
        "outputs": ["Mule.received", "Mule.first_senders", "Mule.passed_on", "Mule.payments_7d", "Mule.suspicion"],
        "expected": {
            "Mule.received": [35.0, 0.0, 0.0],
            "Mule.first_senders": [["ann", "bob"], [], []],
            "Mule.passed_on": [36.0, 16.0 + 4.0, 0.0],
            "Mule.payments_7d": [1, 2, 0],
            "Mule.suspicion": [1.0, 20.0, 0.0],
        },
    },
    {  # Eleven days later all has left the window, but who came first stays.
        "at": "2026-01-16T12:00:00Z",
        "inputs": {"Mule.account": ["mia"]},
        "outputs": ["Mule.senders", "Mule.first_senders", "Mule.received"],
        "expected": {"Mule.senders": [[]], "Mule.first_senders": [["ann", "bob"]], "Mule.received": [0.0]},
    },
]  # fmt: skip
