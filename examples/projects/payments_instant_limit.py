"""Instant transfers: how much may leave an account right now?

The limit is a multiple of the balance, less what has left within a day, and nothing for accounts that are new. The
multiple is a secret of the risk team.
"""

import decimal
from datetime import date, datetime
from typing import Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import includes, inputs, outputs, secrets

__owner__ = "instant@payments.example"

core = Webhook(name="core_banking")


@source(core.endpoint("accounts"), disorder="1d", cdc="upsert")
@dataset(index=True, history="5y")
class Accounts:
    account: int = field(key=True, erase_key=True).meta(description="IBAN, tokenised")
    opened: date
    balance: Decimal[2]
    changed_at: datetime


@source(core.endpoint("transfers"), disorder="1d", cdc="append")
@dataset
class Transfers:
    account: int
    amount: Decimal[2]
    sent_at: datetime


@dataset(index=True)
class Sent:
    account: int = field(key=True)
    sent_1d: Decimal[2]
    sent_at: datetime

    @pipeline
    @inputs(Transfers)
    def by_account(cls, transfers: Dataset):
        return transfers.groupby("account").aggregate(sent_1d=Sum(of="amount", window=Continuous("1d")))


def age_in_days(opened, at):
    """Tell how many days an account is old; one that isn't known is new."""
    return 0 if pd.isna(opened) else (at.date() - opened).days


@includes(age_in_days)
def is_new(opened, at):
    """Tell whether an account is too young for instant transfers."""
    return age_in_days(opened, at) < 14


@featureset
class InstantTransfer:
    account: int
    balance: Optional[Decimal[2]] = F(Accounts.balance)
    sent_1d: Decimal[2] = F(Sent.sent_1d, default=decimal.Decimal("0.00"))
    allowed: bool
    limit: Decimal[2]

    @extractor(deps=[Accounts], version=2)
    @includes(is_new)
    @inputs("account", "balance", "sent_1d")
    @outputs("allowed", "limit")
    def decide(cls, ts, account, balance, sent):
        """Look at the account, then at what is left."""
        rows, found = Accounts.lookup(ts, account=account, fields=["opened"])
        allowed = [ok and not is_new(opened, at) for ok, opened, at in zip(found, rows["opened"], ts)]
        factor = int(secrets.get("limit_factor"))
        zero = sent - sent
        left = [
            max(has * factor - gone, none) if ok else none for ok, has, gone, none in zip(allowed, balance, sent, zero)
        ]
        return pd.DataFrame({"allowed": allowed, "limit": pd.Series(left, dtype=object)})


SECRETS = {"limit_factor": "2"}
LOGS = [
    ("core_banking", "accounts", [
        {"account": 1, "opened": "2025-03-01", "balance": "100.10", "changed_at": "2026-01-01"},
        {"account": 2, "opened": "2026-01-01", "balance": "900.00", "changed_at": "2026-01-01"},
        {"account": 1, "opened": "2025-03-01", "balance": "10.00", "changed_at": "2026-01-06"},
    ]),
    ("core_banking", "transfers", [
        {"account": 1, "amount": "30.25", "sent_at": "2026-01-04T18:00:00Z"},
        {"account": 1, "amount": "0.05", "sent_at": "2026-01-05T09:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # Twice 100.10, less 30.25 and 0.05; account 2 is four days old; 3 isn't known.
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"InstantTransfer.account": [1, 2, 3]},
        "outputs": ["InstantTransfer.sent_1d", "InstantTransfer.allowed", "InstantTransfer.limit"],
        "expected": {
            "InstantTransfer.sent_1d": [decimal.Decimal(value) for value in ("30.30", "0.00", "0.00")],
            "InstantTransfer.allowed": [True, False, False],
            "InstantTransfer.limit": [decimal.Decimal(value) for value in ("169.90", "0.00", "0.00")],
        },
    },
    {  # Now: nothing has left for long, and account 2 has come of age.
        "at": None,
        "inputs": {"InstantTransfer.account": [1, 2]},
        "outputs": ["InstantTransfer.limit"],
        "expected": {"InstantTransfer.limit": [decimal.Decimal("20.00"), decimal.Decimal("1800.00")]},
    },
]
