"""Budget pacing: should a campaign bid less, so that its budget lasts until midnight?

Spend is compared with the share of the day that has passed, in the time zone of the advertiser.
"""

from datetime import datetime
from typing import Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "pacing@ads.example"

exchange = Webhook(name="exchange")


@source(exchange.endpoint("wins"), disorder="30m", cdc="append")
@dataset
class Wins:
    """Auctions that were won, at a price in millionths of a euro."""

    campaign: int
    micros: int
    won_at: datetime


@source(exchange.endpoint("budgets"), disorder="30m", cdc="upsert")
@dataset(index=True)
class Budgets:
    campaign: int = field(key=True)
    daily_euros: float
    ends_at: Optional[datetime]
    set_at: datetime


@dataset(index=True)
class Spend:
    campaign: int = field(key=True)
    micros_1d: int
    won_at: datetime

    @pipeline
    @inputs(Wins)
    def by_campaign(cls, wins: Dataset):
        return wins.groupby("campaign").aggregate(micros_1d=Sum(of="micros", window=Continuous("24h")))


@dataset(index=True)
class HourlyWins:
    """Full hours only, and those only when the next one is over too: stragglers are common."""

    campaign: int = field(key=True)
    wins: int
    won_at: datetime

    @pipeline
    @inputs(Wins)
    def by_hour(cls, wins: Dataset):
        return wins.groupby("campaign").aggregate(wins=Count(window=Tumbling("1h", lookback="1h")))


@featureset
class Campaign:
    campaign: int
    budget: float = F(Budgets.daily_euros, default=0.0)
    ends_at: Optional[datetime] = F(Budgets.ends_at)
    micros_1d: int = F(Spend.micros_1d, default=0)
    settled_wins: int = F(HourlyWins.wins, default=0)
    spent: float = F(when(col("budget") > 0.0).then(col("micros_1d") / (col("budget") * 1_000_000)).otherwise(1.0))
    day_passed: float = F(now().dt.with_tz("Europe/Berlin").hour / 24)
    ahead: bool = F(col("spent") > col("day_passed"))
    over: bool = F((col("ends_at").dt.since_epoch() <= now().dt.since_epoch()).fillnull(False))
    bid_factor: float = F(
        when(col("over")).then(0.0).when(col("ahead")).then((col("day_passed") / col("spent")).round(2)).otherwise(1.0)
    )


LOGS = [
    ("exchange", "budgets", [
        {"campaign": 1, "daily_euros": 100.0, "ends_at": None, "set_at": "2026-01-01"},
        {"campaign": 2, "daily_euros": 10.0, "ends_at": "2026-01-05T00:00:00Z", "set_at": "2026-01-01"},
    ]),
    ("exchange", "wins", [
        {"campaign": 1, "micros": 50_000_000, "won_at": "2026-01-05T08:10:00Z"},
        {"campaign": 1, "micros": 20_000_000, "won_at": "2026-01-05T08:50:00Z"},
        {"campaign": 1, "micros": 10_000_000, "won_at": "2026-01-05T09:20:00Z"},
        {"campaign": 2, "micros": 1_000_000, "won_at": "2026-01-05T10:30:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # Noon in Berlin: half of the day, four fifths of the budget. Of full hours, only the one until nine is settled.
        "at": "2026-01-05T11:00:00Z",
        "inputs": {"Campaign.campaign": [1, 2, 3]},
        "outputs": ["Campaign.spent", "Campaign.day_passed", "Campaign.settled_wins", "Campaign.over",
                    "Campaign.bid_factor"],
        "expected": {
            "Campaign.spent": [0.8, 0.1, 1.0],
            "Campaign.day_passed": [0.5, 0.5, 0.5],
            "Campaign.settled_wins": [2, 0, 0],
            "Campaign.over": [False, True, False],
            "Campaign.bid_factor": [0.63, 0.0, 0.5],  # 0.625, half away from zero
        },
    },
]  # fmt: skip
