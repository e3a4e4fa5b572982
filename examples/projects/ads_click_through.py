"""Click-through: how much is it worth to show an ad once more?

A click counts for the impression that it belongs to if it comes within half an hour. Rates of ads that were hardly
shown are not served at all.
"""

from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Hopping
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "ranking@ads.example"

beacon = Webhook(name="beacon")


@source(beacon.endpoint("impressions"), disorder="1h", cdc="append", sample=1.0)
@dataset
class Impressions:
    impression: str
    ad: int
    slot: str
    shown_at: datetime


@source(beacon.endpoint("clicks"), disorder="1h", cdc="append")
@dataset
class Clicks:
    impression: str
    clicked_at: datetime


@dataset
class FirstClicks:
    impression: str = field(key=True)
    clicked_at: datetime

    @pipeline
    @inputs(Clicks)
    def first(cls, clicks: Dataset):
        return clicks.groupby("impression").first()


@dataset(index=True)
class AdRates:
    """The last 24 hours, renewed each hour."""

    ad: int = field(key=True)
    rate: float
    shown: int
    shown_at: datetime

    @pipeline
    @inputs(Impressions, FirstClicks)
    def by_ad(cls, impressions: Dataset, clicks: Dataset):
        day = Hopping("1d", "1h")
        return (
            impressions.filter(lambda df: df["slot"] != "test")
            .join(clicks, how="left", on=["impression"], within=("0s", "30m"), fields=["clicked_at"])
            .assign("clicked", float, lambda df: df["clicked_at"].notna().astype(float))
            .groupby("ad")
            .aggregate(rate=Average(of="clicked", window=day), shown=Count(window=day), emit="final")
            .filter(col("shown") >= 2)
        )


@featureset
class Ad:
    ad: int
    cents_per_click: float
    rate: float = F(AdRates.rate, default=0.01)
    shown: int = F(AdRates.shown, default=0)
    known: bool = F(col("shown") > 0)
    value: float = F(col("rate") * col("cents_per_click"))


LOGS = [
    ("beacon", "impressions", [
        {"impression": "i1", "ad": 1, "slot": "top", "shown_at": "2026-01-05T10:05:00Z"},
        {"impression": "i2", "ad": 1, "slot": "top", "shown_at": "2026-01-05T10:20:00Z"},
        {"impression": "i3", "ad": 2, "slot": "side", "shown_at": "2026-01-05T10:30:00Z"},
        {"impression": "i4", "ad": 1, "slot": "test", "shown_at": "2026-01-05T10:40:00Z"},
        {"impression": "i5", "ad": 1, "slot": "side", "shown_at": "2026-01-05T11:10:00Z"},
        {"impression": "i6", "ad": 2, "slot": "side", "shown_at": "2026-01-05T12:10:00Z"},
    ]),
    ("beacon", "clicks", [
        {"impression": "i1", "clicked_at": "2026-01-05T10:10:00Z"},
        {"impression": "i1", "clicked_at": "2026-01-05T10:11:00Z"},
        {"impression": "i2", "clicked_at": "2026-01-05T11:00:00Z"},
        {"impression": "i5", "clicked_at": "2026-01-05T11:39:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # i1 was clicked, i2 too late; ad 2 was shown once.
        "at": "2026-01-05T11:30:00Z",
        "inputs": {"Ad.ad": [1, 2], "Ad.cents_per_click": [20.0, 100.0]},
        "outputs": ["Ad.rate", "Ad.shown", "Ad.known", "Ad.value"],
        "expected": {"Ad.rate": [0.5, 0.01], "Ad.shown": [2, 0], "Ad.known": [True, False], "Ad.value": [10.0, 1.0]},
    },
    {  # i1 and i5 of three; the second impression of ad 2 lies in an hour that isn't over.
        "at": "2026-01-05T13:00:00Z",
        "inputs": {"Ad.ad": [1, 2], "Ad.cents_per_click": [30.0, 100.0]},
        "outputs": ["Ad.rate", "Ad.shown"],
        "expected": {"Ad.rate": [2 / 3, 0.01], "Ad.shown": [3, 0]},
    },
]
