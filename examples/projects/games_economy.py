"""The gold of a game: what players earn, spend and give away.

The features find players who sell gold for money, and keep the prices of the auction house in bounds.
"""

from datetime import datetime
from decimal import Decimal as PythonDecimal
from typing import Dict, List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Distinct, Max, Min, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Hopping, between, oneof
from caraway.expr import col, lit, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "economy@games.example"
game = Webhook(name="game")


@source(game.endpoint("transfers"), disorder="1d", cdc="append")
@dataset
class Transfers:
    giver: int
    taker: int
    kind: oneof(str, ["gift", "trade", "auction"])
    gold: Decimal[2]
    goods: Dict[str, int]
    agreed: datetime = field(timestamp=True)
    settled: Optional[datetime]


@source(game.endpoint("levels"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Levels:
    player: int = field(key=True)
    level: between(int, 1, 80)
    reached: datetime


@dataset(index=True)
class Gifts:
    """What a player gave away, by the time at which it was settled."""

    giver: int = field(key=True)
    gold_1d: Decimal[2]
    takers_1d: int
    agreed: datetime

    @pipeline
    @inputs(Transfers)
    def settled_gifts(cls, transfers: Dataset):
        gifts = transfers.filter(col("kind") == "gift").dropnull("settled").drop("goods", "kind")
        return gifts.groupby("giver").aggregate(
            gold_1d=Sum(of="gold", window=Continuous("1d")),
            takers_1d=Count(of="taker", unique=True, approx=True, window=Continuous("1d")),
            along="settled",
        )


@dataset(index=True)
class Prices:
    """What one ingot of iron costs at auctions, anew every hour."""

    good: str = field(key=True)
    lowest: Optional[Decimal[2]]
    highest: Decimal[2]
    sold: int
    agreed: datetime

    @pipeline
    @inputs(Transfers)
    def of_iron(cls, transfers: Dataset):
        iron = transfers.filter((col("kind") == "auction") & (col("goods").dict.get("iron", 0) == 1)).assign(
            good=lit("iron").astype(str), kinds=col("goods").dict.len().astype(int)
        )
        day = Hopping("1d", "1h")
        return (
            iron.filter(col("kinds") == 1)
            .groupby("good")
            .aggregate(
                lowest=Min(of="gold", window=day),
                highest=Max(of="gold", window=day, default=PythonDecimal("0.00")),
                sold=Count(window=day),
            )
        )


@dataset(index=True)
class Partners:
    taker: int = field(key=True)
    givers: List[int]
    agreed: datetime

    @pipeline
    @inputs(Transfers)
    def of_taker(cls, transfers: Dataset):
        return transfers.groupby("taker").aggregate(
            Distinct(of="giver", unordered=True, window=Continuous("forever"), into_field="givers")
        )


@featureset
class Player:
    player: int
    giver: int = F(col("player"))
    taker: int = F(col("player"))
    level: Optional[between(int, 1, 80)] = F(Levels.level)
    gave: Decimal[2] = F(Gifts.gold_1d, default=PythonDecimal("0.00"))
    takers: int = F(Gifts.takers_1d, default=0)
    givers: List[int] = F(Partners.givers, default=[])
    givers_known: int = F(col("givers").list.len())
    farm: bool = F((col("takers") + col("givers_known") >= 3) & (col("level").fillnull(1) < 10))


@featureset
class Auction:
    good: str
    lowest: Optional[Decimal[2]] = F(Prices.lowest)
    highest: Decimal[2] = F(Prices.highest, default=PythonDecimal("0.00"))
    sold: int = F(Prices.sold, default=0)
    market: str = F(when(col("sold") == 0).then("dry").when(col("sold") < 3).then("thin").otherwise("busy"))


def _transfer(
    who: tuple[int, int], kind: str, gold: str, goods: dict[str, int], agreed: str, settled: str | None
) -> dict:
    row = {"giver": who[0], "taker": who[1], "kind": kind, "gold": PythonDecimal(gold), "goods": goods}
    return {**row, "agreed": f"2026-01-{agreed}:00Z", "settled": settled and f"2026-01-{settled}:00Z"}


LOGS = [
    ("game", "levels", [{"player": 7, "level": 3, "reached": "2026-01-01T00:00:00Z"}]),
    (
        "game",
        "transfers",
        [
            _transfer((7, 8), "gift", "100.50", {}, "05T08:00", "05T09:00"),
            _transfer((7, 9), "gift", "49.50", {}, "05T08:30", "05T12:00"),
            _transfer((7, 9), "gift", "1000.00", {}, "05T08:40", None),
            _transfer((5, 7), "trade", "0.10", {"cloth": 1}, "05T08:45", "05T08:45"),
            _transfer((5, 6), "auction", "3.20", {"iron": 1}, "05T09:10", "05T09:10"),
            _transfer((5, 6), "auction", "2.80", {"iron": 1}, "05T09:40", "05T09:40"),
            _transfer((5, 6), "auction", "9.00", {"iron": 1, "coal": 4}, "05T09:50", "05T09:50"),
            _transfer((6, 5), "auction", "4.00", {"iron": 1}, "05T10:20", "05T10:20"),
        ],
    ),
]
ASKS = [
    {
        "at": "2026-01-05T11:00:00Z",
        "inputs": {"Player.player": [7, 5]},
        "outputs": ["Player.gave", "Player.takers", "Player.givers_known", "Player.farm"],
        "expected": {
            "Player.gave": [PythonDecimal("100.50"), PythonDecimal("0.00")],
            "Player.takers": [1, 0],
            "Player.givers_known": [1, 1],
            "Player.farm": [False, False],
        },
    },
    {
        # Both gifts are settled, two takers and one giver.
        "at": "2026-01-05T13:00:00Z",
        "inputs": {"Player.player": [7, 9]},
        "outputs": ["Player.level", "Player.gave", "Player.givers", "Player.farm"],
        "expected": {
            "Player.level": [3, None],
            "Player.gave": [PythonDecimal("150.00"), PythonDecimal("0.00")],
            "Player.givers": [[5], [7]],
            "Player.farm": [True, False],
        },
    },
    {
        # The day that ended at ten o'clock: the third auction was of more than iron, the fourth is too new.
        # Max has a default, which stands for unknown goods as well.
        "at": "2026-01-05T10:30:00Z",
        "inputs": {"Auction.good": ["iron", "coal"]},
        "outputs": ["Auction.lowest", "Auction.highest", "Auction.market"],
        "expected": {
            "Auction.lowest": [PythonDecimal("2.80"), None],
            "Auction.highest": [PythonDecimal("3.20"), PythonDecimal("0.00")],
            "Auction.market": ["thin", "dry"],
        },
    },
]
