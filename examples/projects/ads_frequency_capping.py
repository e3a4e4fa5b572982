"""Frequency capping: which of the candidate campaigns may this user still see?

An auction has dozens of candidates: features are lists, one element for each of them.
"""

from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, var
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "auction@ads.example"

adserver = Webhook(name="adserver")


@source(adserver.endpoint("impressions"), disorder="15m", cdc="append")
@dataset
class Impressions:
    user: int
    campaign: int
    creative: str
    shown_at: datetime


@source(adserver.endpoint("campaigns"), disorder="15m", cdc="upsert")
@dataset(index=True)
class Campaigns:
    campaign: int = field(key=True)
    cap: int  # impressions for a user and day
    changed_at: datetime


@dataset(index=True)
class Shown:
    user: int = field(key=True)
    campaign: int = field(key=True)
    times_1h: int
    times_1d: int
    shown_at: datetime

    @pipeline
    @inputs(Impressions)
    def by_user_and_campaign(cls, impressions: Dataset):
        return impressions.groupby(["user", "campaign"]).aggregate(
            times_1h=Count(window=Continuous("1h")), times_1d=Count(window=Continuous("1d"))
        )


@dataset(index=True)
class LastCreatives:
    user: int = field(key=True)
    campaign: int = field(key=True)
    creative: str
    shown_at: datetime

    @pipeline
    @inputs(Impressions)
    def newest(cls, impressions: Dataset):
        return impressions.groupby("user", "campaign").latest()


@featureset
class Auction:
    """One user, many campaigns: keys of a list lookup are lists of equal length."""

    user: List[int]
    campaign: List[int]
    times_1h: List[int] = F(Shown.times_1h, default=0)
    times_1d: List[int] = F(Shown.times_1d, default=0)
    creatives: List[Optional[str]] = F(LastCreatives.creative)
    caps: List[int] = F(Campaigns.cap, default=3)
    eligible: List[int]
    total_1d: int = F(col("times_1d").list.sum())
    fresh: bool = F(col("times_1h").list.map("n", var("n") == 0).list.all())
    any_new: bool = F(col("creatives").list.hasnull())

    @extractor
    @inputs("campaign", "times_1d", "caps")
    @outputs("eligible")
    def below_cap(cls, ts, campaigns, times, caps):
        rows = zip(campaigns, times, caps)
        return pd.Series([[c for c, n, cap in zip(*row) if n < cap] for row in rows], name="eligible", dtype=object)


LOGS = [
    ("adserver", "campaigns", [
        {"campaign": 10, "cap": 2, "changed_at": "2026-01-01"},
        {"campaign": 11, "cap": 2, "changed_at": "2026-01-01"},
    ]),
    ("adserver", "impressions", [
        {"user": 1, "campaign": 10, "creative": "red", "shown_at": "2026-01-05T09:00:00Z"},
        {"user": 1, "campaign": 10, "creative": "blue", "shown_at": "2026-01-05T11:30:00Z"},
        {"user": 1, "campaign": 11, "creative": "cat", "shown_at": "2026-01-05T10:00:00Z"},
        {"user": 2, "campaign": 10, "creative": "red", "shown_at": "2026-01-05T10:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-05T12:00:00Z",
        "inputs": {"Auction.user": [[1, 1, 1], [2, 2], []], "Auction.campaign": [[10, 11, 12], [10, 11], []]},
        "outputs": ["Auction.times_1h", "Auction.times_1d", "Auction.creatives", "Auction.eligible",
                    "Auction.total_1d", "Auction.fresh", "Auction.any_new"],
        "expected": {
            "Auction.times_1h": [[1, 0, 0], [0, 0], []],
            "Auction.times_1d": [[2, 1, 0], [1, 0], []],
            "Auction.creatives": [["blue", "cat", None], ["red", None], []],
            "Auction.eligible": [[11, 12], [10, 11], []],
            "Auction.total_1d": [3, 1, 0],
            "Auction.fresh": [False, True, True],
            "Auction.any_new": [True, True, False],
        },
    },
]  # fmt: skip
