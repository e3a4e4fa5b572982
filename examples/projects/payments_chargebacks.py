"""Chargebacks: is a merchant about to break the limits of the card schemes?

Notices of two schemes come in different forms; a dispute counts for the merchant of its charge, if that is recent.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Distinct, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_values_to_be_between, expectations, inputs

__owner__ = "disputes@payments.example"

schemes = Webhook(name="schemes")


@source(schemes.endpoint("charges"), disorder="1d", cdc="append")
@dataset
class Charges:
    charge: str
    merchant: int
    cents: int
    charged_at: datetime

    @expectations
    def amounts_are_sane(cls):
        return [expect_column_values_to_be_between(str(cls.cents), min_value=1, max_value=10_000_000, mostly=0.99)]


@source(schemes.endpoint("visa"), disorder="7d", cdc="append")
@dataset
class VisaDisputes:
    claim: str
    reason: str
    agent: str
    disputed_at: datetime


@source(schemes.endpoint("mastercard"), disorder="7d", cdc="append")
@dataset
class MastercardDisputes:
    charge: Optional[str]  # some notices name no charge; they are dealt with by hand
    reason: str
    disputed_at: datetime


@dataset
class ChargesById:
    """A charge that is reported twice counts as it was reported first."""

    charge: str = field(key=True)
    merchant: int
    cents: int
    charged_at: datetime

    @pipeline
    @inputs(Charges)
    def once(cls, charges: Dataset):
        return charges.groupby("charge").first()


@dataset(index=True)
class MerchantDisputes:
    merchant: int = field(key=True)
    disputes_90d: int
    disputed_cents_90d: int
    reasons_90d: List[str]
    disputed_at: datetime

    @pipeline
    @inputs(VisaDisputes, MastercardDisputes, ChargesById)
    def by_merchant(cls, visa: Dataset, mastercard: Dataset, charges: Dataset):
        disputes = visa.rename({"claim": "charge"}).select("charge", "reason") + mastercard.dropnull("charge")
        of_known = disputes.join(charges, how="inner", on=["charge"], within=("120d", "0s"))
        quarter = Continuous("90d")
        return of_known.groupby("merchant").aggregate(
            disputes_90d=Count(window=quarter),
            disputed_cents_90d=Sum(of="cents", window=quarter),
            reasons_90d=Distinct(of="reason", unordered=True, window=quarter),
        )


@dataset(index=True)
class MerchantCharges:
    merchant: int = field(key=True)
    charges_90d: int
    charged_at: datetime

    @pipeline
    @inputs(Charges)
    def by_merchant(cls, charges: Dataset):
        return charges.groupby("merchant").aggregate(charges_90d=Count(window=Continuous("90d")))


@featureset
class Merchant:
    merchant: int
    disputes_90d: int = F(MerchantDisputes.disputes_90d, default=0)
    disputed_cents_90d: int = F(MerchantDisputes.disputed_cents_90d, default=0)
    reasons_90d: List[str] = F(MerchantDisputes.reasons_90d, default=[])
    charges_90d: int = F(MerchantCharges.charges_90d, default=0)
    rate: float = F(when(col("charges_90d") > 0).then(col("disputes_90d") / col("charges_90d")).otherwise(0.0))
    fraud_only: bool = F((col("reasons_90d").list.len() == 1) & col("reasons_90d").list.contains("fraud"))


LOGS = [
    ("schemes", "charges", [
        {"charge": "x1", "merchant": 5, "cents": 100, "charged_at": "2025-08-01"},
        {"charge": "x2", "merchant": 5, "cents": 2000, "charged_at": "2025-12-20"},
        {"charge": "x2", "merchant": 5, "cents": 2001, "charged_at": "2025-12-21"},
        {"charge": "x3", "merchant": 5, "cents": 500, "charged_at": "2025-12-22"},
    ]),
    ("schemes", "visa", [
        {"claim": "x1", "reason": "quality", "agent": "A", "disputed_at": "2026-01-05"},
        {"claim": "x2", "reason": "fraud", "agent": "B", "disputed_at": "2026-01-06"},
    ]),
    ("schemes", "mastercard", [
        {"charge": None, "reason": "quality", "disputed_at": "2026-01-06"},
        {"charge": "x3", "reason": "fraud", "disputed_at": "2026-01-07"},
    ]),
]  # fmt: skip
# x1 is too old for the dispute of January to count; of the last 90 days are x2 (twice) and x3.
ASKS = [
    {
        "at": "2026-01-08T00:00:00Z",
        "inputs": {"Merchant.merchant": [5, 6]},
        "outputs": ["Merchant"],
        "expected": {
            "Merchant.merchant": [5, 6],
            "Merchant.disputes_90d": [2, 0],
            "Merchant.disputed_cents_90d": [2500, 0],
            "Merchant.reasons_90d": [["fraud"], []],
            "Merchant.charges_90d": [3, 0],
            "Merchant.rate": [2 / 3, 0.0],
            "Merchant.fraud_only": [True, False],
        },
    },
]
