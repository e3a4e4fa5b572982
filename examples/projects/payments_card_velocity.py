"""Card fraud: is this authorisation part of a burst?

A stolen card is used often, at many merchants and in several countries, within minutes. The features feed a rule
that asks the holder for a second factor.
"""

from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, oneof
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "fraud@payments.example"

gateway = Webhook(name="card_gateway")


@source(gateway.endpoint("authorisations"), disorder="1h", cdc="append")
@dataset
class Authorisations:
    """A merchant has asked whether a card may be charged."""

    card: str
    merchant: int
    country: str
    cents: int
    outcome: oneof(str, ["approved", "declined"])
    asked_at: datetime


@dataset(index=True)
class CardActivity:
    """What a card was used for lately, whether that was approved or not."""

    card: str = field(key=True)
    attempts_10m: int
    attempts_1d: int
    merchants_1h: int
    countries_1h: int
    asked_at: datetime

    @pipeline
    @inputs(Authorisations)
    def by_card(cls, authorisations: Dataset):
        return authorisations.groupby("card").aggregate(
            attempts_10m=Count(window=Continuous("10m")),
            attempts_1d=Count(window=Continuous("1d")),
            merchants_1h=Count(of="merchant", unique=True, approx=True, window=Continuous("1h")),
            countries_1h=Count(of="country", unique=True, approx=True, window=Continuous("1h")),
        )


@dataset(index=True)
class CardSpend:
    """What was approved, in euros."""

    card: str = field(key=True)
    spent_1h: float
    mean_30d: float
    largest_30d: float
    asked_at: datetime

    @pipeline
    @inputs(Authorisations)
    def by_card(cls, authorisations: Dataset):
        return (
            authorisations.filter(col("outcome") == "approved")
            .assign(euros=(col("cents") / 100).astype(float))
            .groupby("card")
            .aggregate(
                spent_1h=Sum(of="euros", window=Continuous("1h")),
                mean_30d=Average(of="euros", window=Continuous("30d")),
                largest_30d=Max(of="euros", window=Continuous("30d"), default=0.0),
            )
        )


@featureset
class Card:
    """All that the rule looks at."""

    card: str
    attempts_10m: int = F(CardActivity.attempts_10m, default=0)
    attempts_1d: int = F(CardActivity.attempts_1d, default=0)
    merchants_1h: int = F(CardActivity.merchants_1h, default=0)
    countries_1h: int = F(CardActivity.countries_1h, default=0)
    spent_1h: float = F(CardSpend.spent_1h, default=0.0)
    mean_30d: float = F(CardSpend.mean_30d, default=0.0)
    largest_30d: float = F(CardSpend.largest_30d, default=0.0)
    burst: bool = F((col("attempts_10m") >= 3) | (col("countries_1h") > 1))


LOGS = [
    (
        "card_gateway",
        "authorisations",
        [
            {"card": "c1", "merchant": 7, "country": "DE", "cents": 2000, "outcome": "approved",
             "asked_at": "2026-01-05T09:00:00Z"},
            {"card": "c1", "merchant": 8, "country": "DE", "cents": 4000, "outcome": "approved",
             "asked_at": "2026-01-05T11:55:00Z"},
            {"card": "c1", "merchant": 8, "country": "FR", "cents": 90000, "outcome": "declined",
             "asked_at": "2026-01-05T11:58:00Z"},
            {"card": "c2", "merchant": 7, "country": "DE", "cents": 1250, "outcome": "approved",
             "asked_at": "2026-01-05T10:00:00Z"},
        ],
    )
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Card.card": ["c1", "c2", "c3"]},
        "outputs": ["Card.attempts_10m", "Card.attempts_1d", "Card.merchants_1h", "Card.spent_1h", "Card.mean_30d",
                    "Card.largest_30d", "Card.burst"],
        "expected": {
            "Card.attempts_10m": [2, 0, 0],
            "Card.attempts_1d": [3, 1, 0],
            "Card.merchants_1h": [1, 0, 0],
            "Card.spent_1h": [40.0, 0.0, 0.0],
            "Card.mean_30d": [30.0, 12.5, 0.0],
            "Card.largest_30d": [40.0, 12.5, 0.0],
            "Card.burst": [True, False, False],
        },
    },
    {  # Sixty minutes and a second after the attempt in France it no longer counts as a second country.
        "at": "2026-01-05T12:58:01Z",
        "inputs": {"Card.card": ["c1"]},
        "outputs": ["Card.countries_1h", "Card.burst"],
        "expected": {"Card.countries_1h": [0], "Card.burst": [False]},
    },
]  # fmt: skip
