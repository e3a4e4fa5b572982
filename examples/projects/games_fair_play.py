"""Fair play: who plays against whom, and who shoots better than people can.

The features make even matches, and bring suspicious players before a human moderator.
"""

from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, LastK, Quantile, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, when
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "fairplay@games.example"
arena = Webhook(name="arena")


@source(arena.endpoint("rounds"), disorder="2h", cdc="append")
@dataset
class Rounds:
    player: int
    shots: int
    hits: int
    reactions_ms: List[int]
    won: bool
    ended: datetime


@source(arena.endpoint("ratings"), disorder="2h", cdc="upsert")
@dataset(index=True)
class Ratings:
    player: int = field(key=True)
    elo: float
    region: str
    rated: datetime


@dataset(index=True)
class Aim:
    player: int = field(key=True)
    shots: int
    hits: int
    rounds: int
    last_wins: List[bool]
    ended: datetime

    @pipeline
    @inputs(Rounds)
    def totals(cls, rounds: Dataset):
        month = Continuous("30d")
        return (
            rounds.filter(lambda df: df["shots"] > 0)
            .groupby("player")
            .aggregate(
                shots=Sum(of="shots", window=month),
                hits=Sum(of="hits", window=month),
                rounds=Count(window=month),
                last_wins=LastK(of="won", limit=3, dedup=False, window=month),
            )
        )


@dataset(index=True)
class Reactions:
    player: int = field(key=True)
    fast_ms: Optional[float]
    mean_ms: Optional[float]
    fastest_rounds_mean: float
    ended: datetime

    @pipeline
    @inputs(Rounds)
    def single(cls, rounds: Dataset):
        measured = rounds.assign(best=col("reactions_ms").list.min().fillnull(1000).astype(int))
        each = measured.explode(columns=["reactions_ms"]).dropnull("reactions_ms")
        return each.groupby(["player"]).aggregate(
            fast_ms=Quantile(of="reactions_ms", p=0.1, approx=True, window=Continuous("30d")),
            mean_ms=Average(of="reactions_ms", default=None, window=Continuous("30d")),
            fastest_rounds_mean=Average(of="best", window=Continuous("30d")),
        )


@featureset
class Player:
    player: int
    shots: int = F(Aim.shots, default=0)
    hits: int = F(Aim.hits, default=0)
    rounds: int = F(Aim.rounds, default=0)
    last_wins: List[bool] = F(Aim.last_wins, default=[])
    accuracy: Optional[float] = F(when(col("shots") > 0).then(col("hits") / col("shots")))
    fast_ms: Optional[float] = F(Reactions.fast_ms)
    mean_ms: Optional[float] = F(Reactions.mean_ms)
    on_a_streak: bool = F((col("last_wins").list.len() == 3) & col("last_wins").list.all())
    suspicious: bool = F((col("accuracy").fillnull(0.0) > 0.75) & (col("fast_ms").fillnull(999.0) < 120.0))


@featureset
class Duel:
    """Two players who might be put into one match."""

    home: int
    away: int
    win_chance: float
    same_region: bool
    even: bool = F((col("win_chance") - 0.5).num.abs() <= 0.1)

    @extractor(deps=[Ratings])
    @inputs("home", "away")
    @outputs("win_chance", "same_region")
    def chance(cls, ts, home, away):
        ours, _ = Ratings.lookup(ts, player=home, fields=["elo", "region"])
        theirs, _ = Ratings.lookup(ts, player=away, fields=["elo", "region"])
        gap = theirs["elo"].fillna(1000.0).astype(float) - ours["elo"].fillna(1000.0).astype(float)
        same = (ours["region"] == theirs["region"]).fillna(value=False).astype(bool)
        return pd.DataFrame({"win_chance": 1.0 / (1.0 + 10.0 ** (gap / 400.0)), "same_region": same})


def _round(player: int, shots: int, hits: int, reactions: list[int], won: bool, time: str) -> dict:  # noqa: FBT001
    row = {"player": player, "shots": shots, "hits": hits, "reactions_ms": reactions, "won": won}
    return {**row, "ended": f"2026-01-{time}:00Z"}


LOGS = [
    (
        "arena",
        "ratings",
        [
            {"player": 1, "elo": 1000.0, "region": "eu", "rated": "2026-01-01T00:00:00Z"},
            {"player": 2, "elo": 1200.0, "region": "eu", "rated": "2026-01-01T00:00:00Z"},
            {"player": 1, "elo": 1200.0, "region": "eu", "rated": "2026-01-06T00:00:00Z"},
        ],
    ),
    (
        "arena",
        "rounds",
        [
            _round(1, 10, 4, [310, 250], won=False, time="05T20:00"),
            _round(1, 0, 0, [], won=False, time="05T20:10"),
            _round(2, 8, 7, [90, 100, 140], won=True, time="05T20:00"),
            _round(2, 10, 9, [110, 80, 95], won=True, time="05T20:20"),
            _round(2, 2, 2, [105], won=True, time="05T20:40"),
        ],
    ),
]
ASKS = [
    {
        # Player 2 hit 18 of 20. Of the seven reactions in order, 80 90 95 100 105 110 140, floor(0.1 * 7) is the first.
        "at": "2026-01-05T21:00:00Z",
        "inputs": {"Player.player": [1, 2, 3]},
        "outputs": [
            "Player.rounds",
            "Player.accuracy",
            "Player.fast_ms",
            "Player.mean_ms",
            "Player.on_a_streak",
            "Player.suspicious",
        ],
        "expected": {
            "Player.rounds": [1, 3, 0],
            "Player.accuracy": [0.4, 0.9, None],
            "Player.fast_ms": [250.0, 80.0, None],
            "Player.mean_ms": [280.0, 720 / 7, None],
            "Player.on_a_streak": [False, True, False],
            "Player.suspicious": [False, True, False],
        },
    },
    {
        "at": "2026-01-07T00:00:00Z",
        "inputs": {"Duel.home": [1, 1], "Duel.away": [2, 3]},
        "outputs": ["Duel.win_chance", "Duel.same_region", "Duel.even"],
        "expected": {
            "Duel.win_chance": [0.5, 1.0 / (1.0 + 10.0 ** (-200 / 400))],
            "Duel.same_region": [True, False],
            "Duel.even": [True, False],
        },
    },
]
