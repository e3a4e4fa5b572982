"""Stock: how much of an article lies in all bins of a warehouse, from the changes of single bins in its database.

The features decide what a shop offers as "in stock", and when to order more.
"""

from datetime import datetime

from caraway.connectors import Webhook, eval, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, between
from caraway.expr import col, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "stock@warehouse.example"
warehouse = Webhook(name="warehouse")


@source(warehouse.endpoint("bins"), disorder="1d", cdc="debezium")
@dataset(index=True)
class Bins:
    """What lies in a bin: rows of a database table, which come as changes."""

    bin: str = field(key=True)
    article: str
    pieces: between(int, 0, 10_000)
    counted: datetime


@source(warehouse.endpoint("reservations"), disorder="1d", cdc="append", where=eval(col("pieces") > 0))
@dataset
class Reservations:
    article: str
    pieces: int
    at: datetime


@source(warehouse.endpoint("articles"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Articles:
    article: str = field(key=True)
    reorder_at: int
    since: datetime


@dataset(index=True)
class Stock:
    article: str = field(key=True)
    pieces: int
    bins: int
    counted: datetime

    @pipeline
    @inputs(Bins)
    def over_bins(cls, bins: Dataset):
        changes = bins.changelog(delete="left").assign(
            change=when(col("left")).then(-col("pieces")).otherwise(col("pieces")).astype(int),
            bin_change=when(col("left")).then(-1).otherwise(1).astype(int),
        )
        return changes.groupby("article").aggregate(
            Sum(of="change", window=Continuous("forever"), into_field="pieces"),
            Sum(of="bin_change", window=Continuous("forever"), into_field="bins"),
        )


@dataset(index=True)
class Reserved:
    article: str = field(key=True)
    pieces: int
    baskets: int
    at: datetime

    @pipeline
    @inputs(Reservations)
    def in_baskets(cls, reservations: Dataset):
        # A basket that isn't paid within half an hour is given up.
        return reservations.groupby("article").aggregate(
            pieces=Sum(of="pieces", window=Continuous("30m")), baskets=Count(window=Continuous("30m"))
        )


@featureset
class Article:
    article: str
    on_shelf: int = F(Stock.pieces, default=0)
    bins: int = F(Stock.bins, default=0)
    reserved: int = F(Reserved.pieces, default=0)
    reorder_at: int = F(Articles.reorder_at, default=0)
    available: int = F(when(col("on_shelf") > col("reserved")).then(col("on_shelf") - col("reserved")).otherwise(0))
    reorder: bool = F(col("available") < col("reorder_at"))


def _state(bin_: str, article: str, pieces: int, time: str) -> dict:
    return {"bin": bin_, "article": article, "pieces": pieces, "counted": f"2026-01-{time}:00Z"}


def _change(op: str, before: dict | None, after: dict | None, ts_ms: int) -> dict:
    return {"op": op, "before": before, "after": after, "ts_ms": ts_ms}


LOGS = [
    (
        "warehouse",
        "bins",
        [
            _change("c", None, _state("b1", "tea", 40, "05T08:00"), 1767600000000),
            _change("c", None, _state("b2", "tea", 25, "05T08:10"), 1767600600000),
            _change("u", _state("b1", "tea", 40, "05T08:00"), _state("b1", "tea", 30, "05T09:00"), 1767603600000),
            _change("u", _state("b2", "tea", 25, "05T08:10"), _state("b2", "cup", 12, "05T10:00"), 1767607200000),
            _change("d", _state("b1", "tea", 30, "05T09:00"), None, 1767610800000),  # at 11 o'clock
        ],
    ),
    (
        "warehouse",
        "reservations",
        [
            {"article": "tea", "pieces": 3, "at": "2026-01-05T09:15:00Z"},
            {"article": "tea", "pieces": -3, "at": "2026-01-05T09:16:00Z"},
            {"article": "tea", "pieces": 4, "at": "2026-01-05T09:40:00Z"},
        ],
    ),
    ("warehouse", "articles", [{"article": "tea", "reorder_at": 50, "since": "2026-01-01T00:00:00Z"}]),
]
ASKS = [
    {
        # 30 + 25 tea lie in two bins, 7 are in baskets.
        "at": "2026-01-05T09:45:00Z",
        "inputs": {"Article.article": ["tea", "cup"]},
        "outputs": ["Article.on_shelf", "Article.bins", "Article.reserved", "Article.available", "Article.reorder"],
        "expected": {
            "Article.on_shelf": [55, 0],
            "Article.bins": [2, 0],
            "Article.reserved": [7, 0],
            "Article.available": [48, 0],
            "Article.reorder": [True, False],
        },
    },
    {
        # The second bin holds cups by now.
        "at": "2026-01-05T10:05:00Z",
        "inputs": {"Article.article": ["tea", "cup"]},
        "outputs": ["Article.on_shelf", "Article.bins", "Article.available"],
        "expected": {"Article.on_shelf": [30, 12], "Article.bins": [1, 1], "Article.available": [26, 12]},
    },
    {
        # The first bin is gone, and its tea with it.
        "at": None,
        "inputs": {"Article.article": ["tea", "cup"]},
        "outputs": ["Article.on_shelf", "Article.bins"],
        "expected": {"Article.on_shelf": [0, 12], "Article.bins": [0, 1]},
    },
]
