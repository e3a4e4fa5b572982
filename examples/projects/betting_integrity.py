"""Bets on matches: money that flows where it usually doesn't, and odds that move before the news does.

The features suspend a market until somebody has looked at it.
"""

from datetime import date, datetime
from decimal import Decimal as PythonDecimal
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, ExpDecaySum, FirstK, Max, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Tumbling, oneof
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import expect_column_pair_values_A_to_be_greater_than_B, expectations, inputs

__owner__ = "integrity@bets.example"
book = Webhook(name="book")
Pick = oneof(str, ["home", "draw", "away"])


@source(book.endpoint("bets"), disorder="1h", cdc="append")
@dataset
class Bets:
    account: int
    fixture: str
    pick: Pick
    stake: Decimal[2]
    placed: datetime


@source(book.endpoint("cash_outs"), disorder="1h", cdc="append", preproc={"pick": "draw"})
@dataset
class CashOuts:
    account: int
    fixture: str
    pick: Pick
    stake: Decimal[2]
    placed: datetime


@source(book.endpoint("odds"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Odds:
    fixture: str = field(key=True)
    pick: Pick = field(key=True)
    back: float
    lay: float
    kick_off: date
    offered: datetime

    @expectations
    def spread(cls):
        return [
            expect_column_pair_values_A_to_be_greater_than_B(
                column_A=str(cls.lay), column_B=str(cls.back), or_equal=True
            )
        ]


@dataset(index=True)
class Money:
    fixture: str = field(key=True)
    pick: Pick = field(key=True)
    staked: Decimal[2]
    largest: Decimal[2]
    interest: float
    early: List[Decimal[2]]
    placed: datetime

    @pipeline
    @inputs(Bets)
    def on_pick(cls, bets: Dataset):
        two_hours = Continuous("2h")
        return (
            bets.assign(one=when(col("account") > 0).then(1).otherwise(0).astype(int))
            .groupby("fixture", "pick")
            .aggregate(
                staked=Sum(of="stake", window=two_hours),
                largest=Max(of="stake", window=two_hours, default=PythonDecimal("0.00")),
                interest=ExpDecaySum(of="one", half_life="30m", window=Continuous("forever")),
                early=FirstK(of="stake", limit=2, dedup=True, dropnull=False, window=Continuous("forever")),
            )
        )


@dataset(index=True)
class Taken:
    """At which odds people bet, against those that were offered at most ten minutes before."""

    fixture: str = field(key=True)
    mean_odds: Optional[float]
    bets: int
    placed: datetime

    @pipeline
    @inputs(Bets, CashOuts, Odds)
    def with_odds(cls, bets: Dataset, cash_outs: Dataset, odds: Dataset):
        moves = (bets + cash_outs).assign(what=col("pick").astype(Pick)).drop("pick")
        return (
            moves.join(
                odds,
                how="left",
                left_on=["fixture", "what"],
                right_on=["fixture", "pick"],
                within=("10m", "0s"),
                fields=["back"],
            )
            .groupby("fixture")
            .aggregate(
                mean_odds=Average(of="back", window=Continuous("1d"), default=None), bets=Count(window=Continuous("1d"))
            )
        )


@dataset(index=True)
class Drift:
    """How far the odds of a pick went within the last full hour."""

    fixture: str = field(key=True)
    pick: Pick = field(key=True)
    low: Optional[float]
    high: Optional[float]
    next_day: Optional[date]
    offered: datetime

    @pipeline
    @inputs(Odds)
    def hourly(cls, odds: Dataset):
        offers = odds.changelog(insert="offer").filter(col("offer"))
        hour = Tumbling("1h")
        return offers.groupby("fixture", "pick").aggregate(
            low=Min(of="back", window=hour), high=Max(of="back", window=hour), next_day=Min(of="kick_off", window=hour)
        )


@dataset(index=True)
class Accounts:
    account: int = field(key=True)
    fixture: str
    placed: datetime

    @pipeline
    @inputs(Bets)
    def first_bet(cls, bets: Dataset):
        return bets.select("account", "fixture", "placed").groupby("account").first()


@featureset
class Market:
    fixture: str
    pick: Pick
    account: int
    back: Optional[float] = F(Odds.back)
    lay: Optional[float] = F(Odds.lay)
    staked: Decimal[2] = F(Money.staked, default=PythonDecimal("0.00"))
    largest: Decimal[2] = F(Money.largest, default=PythonDecimal("0.00"))
    early: List[Decimal[2]] = F(Money.early, default=[])
    interest: float = F(Money.interest, default=0.0)
    mean_odds: Optional[float] = F(Taken.mean_odds)
    bets: int = F(Taken.bets, default=0)
    low: Optional[float] = F(Drift.low)
    high: Optional[float] = F(Drift.high)
    next_day: Optional[date] = F(Drift.next_day)
    first_bet: Optional[datetime] = F(Accounts.placed)
    one_big_bet: bool = F((col("largest") == col("staked")) & (col("interest") > 0.0))
    drift: float = F(((col("high") - col("low")) / col("low")).fillnull(0.0))
    spread: Optional[float] = F(col("lay") - col("back"))
    new_account: bool = F((now().dt.since(col("first_bet"), unit="hour") < 24).fillnull(True))
    suspend: bool = F((col("drift") >= 0.5) & col("new_account") & ~(col("mean_odds").fillnull(0.0) < 2.0))


def _bet(account: int, pick: str, stake: str, time: str) -> dict:
    return {
        "account": account,
        "fixture": "f1",
        "pick": pick,
        "stake": PythonDecimal(stake),
        "placed": f"2026-05-09T{time}:00Z",
    }


def _odds(pick: str, back: float, time: str) -> dict:
    row = {"fixture": "f1", "pick": pick, "back": back, "lay": back + 0.25, "kick_off": date(2026, 5, 9)}
    return {**row, "offered": f"2026-05-09T{time}:00Z"}


LOGS = [
    (
        "book",
        "odds",
        [
            _odds("home", 3.0, "10:05"),
            _odds("home", 2.5, "10:20"),
            _odds("home", 2.0, "10:50"),
            _odds("draw", 3.5, "11:05"),
        ],
    ),
    (
        "book",
        "bets",
        [
            _bet(1, "home", "10.00", "09:30"),  # before there were odds
            _bet(1, "home", "12.50", "10:25"),  # at 2.5
            _bet(2, "home", "900.00", "10:55"),  # at 2.0
            _bet(2, "home", "900.00", "10:45"),  # the odds are older than ten minutes
        ],
    ),
    (
        "book",
        "cash_outs",
        [{"account": 1, "fixture": "f1", "stake": PythonDecimal("5.00"), "placed": "2026-05-09T11:10:00Z"}],
    ),
]
ASKS = [
    {
        # Four bets and a cash-out; odds were known for 2.5, 2.0 and 3.5. From 3 down to 2 in an hour.
        "at": "2026-05-09T11:15:00Z",
        "inputs": {
            "Market.fixture": ["f1", "f1", "f2"],
            "Market.pick": ["home", "draw", "home"],
            "Market.account": [2, 1, 3],
        },
        "outputs": [
            "Market.staked",
            "Market.early",
            "Market.bets",
            "Market.mean_odds",
            "Market.drift",
            "Market.next_day",
            "Market.spread",
            "Market.new_account",
            "Market.suspend",
        ],
        "expected": {
            "Market.staked": [PythonDecimal("1822.50"), PythonDecimal("0.00"), PythonDecimal("0.00")],
            "Market.early": [[PythonDecimal("10.00"), PythonDecimal("12.50")], [], []],
            "Market.bets": [5, 5, 0],
            "Market.mean_odds": [8 / 3, 8 / 3, None],
            "Market.drift": [0.5, 0.0, 0.0],
            "Market.next_day": [date(2026, 5, 9), None, None],
            "Market.spread": [0.25, 0.25, None],
            "Market.new_account": [True, True, True],
            "Market.suspend": [True, False, False],
        },
    },
    {
        # One bet, half an hour old: one half of the interest in it is left.
        "at": "2026-05-09T10:00:00Z",
        "inputs": {"Market.fixture": ["f1", "f2"], "Market.pick": ["home", "home"], "Market.account": [1, 1]},
        "outputs": ["Market.interest", "Market.one_big_bet", "Market.largest", "Market.back"],
        "expected": {
            "Market.interest": [0.5, 0.0],
            "Market.one_big_bet": [True, False],
            "Market.largest": [PythonDecimal("10.00"), PythonDecimal("0.00")],
            "Market.back": [None, None],
        },
    },
]
