"""Search ranking: in which order are the results of a search shown?

Each result page is taken apart into its positions; what is clicked far down must be good.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Quantile, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col, var, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "search@shop.example"

web = Webhook(name="shop_web")


@source(web.endpoint("searches"), disorder="10m", cdc="append")
@dataset
class Searches:
    """A page of results, and the product that was clicked, if any."""

    text: str
    products: List[int]
    positions: List[int]
    clicked: Optional[int]
    at: datetime


@dataset
class Results:
    text: str
    product: int
    position: int
    page: int
    column: int
    clicked: bool
    at: datetime

    @pipeline
    @inputs(Searches)
    def take_apart(cls, searches: Dataset):
        return (
            searches.explode("products", "positions")
            .rename({"products": "product", "positions": "position"})
            .dropnull("product", "position")
            .assign(
                text=col("text").str.lower().astype(str),
                page=((col("position") - 1) // 10).astype(int),
                column=((col("position") - 1) % 5).astype(int),
                clicked=(col("product") == col("clicked")).fillnull(False).astype(bool),
            )
        )


@dataset(index=True)
class ResultRates:
    text: str = field(key=True)
    product: int = field(key=True)
    shown: int
    clicks: int
    mean_position: Optional[float]
    median_click: Optional[float]
    at: datetime

    @pipeline
    @inputs(Results)
    def by_text_and_product(cls, results: Dataset):
        month = Continuous("30d")
        clicked_at = when(col("clicked")).then(col("position"))
        return (
            results.assign(
                click=when(col("clicked")).then(1).otherwise(0).astype(int),
                clicked_position=clicked_at.astype(Optional[int]),
            )
            .groupby("text", "product")
            .aggregate(
                shown=Count(window=month),
                clicks=Sum(of="click", window=month),
                mean_position=Average(of="position", window=month, default=None),
                median_click=Quantile(of="clicked_position", p=0.5, approx=True, window=month),
            )
        )


@featureset
class Page:
    """A search with all of its candidates."""

    text: List[str]
    product: List[int]
    shown: List[int] = F(ResultRates.shown, default=0)
    clicks: List[int] = F(ResultRates.clicks, default=0)
    median_click: List[Optional[float]] = F(ResultRates.median_click)
    all_clicks: int = F(col("clicks").list.sum())
    unknown: int = F(col("shown").list.filter("n", var("n") == 0).list.len())


@featureset
class Result:
    """One result on its own."""

    text: str
    product: int
    shown: int = F(ResultRates.shown, default=0)
    clicks: int = F(ResultRates.clicks, default=0)
    mean_position: Optional[float] = F(ResultRates.mean_position)
    score: float = F((col("clicks") + 1) / (col("shown") + 4))


LOGS = [
    ("shop_web", "searches", [
        {"text": "Tea", "products": [1, 2, 3], "positions": [1, 2, 3], "clicked": 2, "at": "2026-01-05T10:00:00Z"},
        {"text": "tea", "products": [2, 1], "positions": [1, 2], "clicked": None, "at": "2026-01-05T11:00:00Z"},
        {"text": "TEA", "products": [1, 2], "positions": [3, 4], "clicked": 2, "at": "2026-01-06T12:00:00Z"},
        {"text": "nothing", "products": [], "positions": [], "clicked": None, "at": "2026-01-06T12:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-07T00:00:00Z",
        "inputs": {"Page.text": [["tea", "tea", "tea"], ["nothing"]], "Page.product": [[1, 2, 7], [1]]},
        "outputs": ["Page.shown", "Page.clicks", "Page.median_click", "Page.all_clicks", "Page.unknown"],
        "expected": {
            "Page.shown": [[3, 3, 0], [0]],
            "Page.clicks": [[0, 2, 0], [0]],
            "Page.median_click": [[None, 4.0, None], [None]],  # of 2 and 4, the upper one
            "Page.all_clicks": [2, 0],
            "Page.unknown": [1, 1],
        },
    },
    {
        "at": "2026-01-05T23:00:00Z",
        "inputs": {"Result.text": ["tea", "tea"], "Result.product": [2, 9]},
        "outputs": ["Result.shown", "Result.mean_position", "Result.score"],
        "expected": {"Result.shown": [2, 0], "Result.mean_position": [1.5, None], "Result.score": [2 / 6, 0.25]},
    },
]
