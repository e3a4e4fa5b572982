"""Product popularity: what belongs onto the front page this hour?

Views are counted by full hours; the best hour that a product ever had tells whether it is having one now.
"""

from datetime import datetime

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Max, Sum, dataset, field, pipeline
from caraway.dtypes import Hopping, Tumbling, Window
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import bucketize, inputs, outputs

__owner__ = "frontpage@shop.example"

web = Webhook(name="shop_web")


@source(web.endpoint("views"), disorder="10m", cdc="append")
@dataset
class Views:
    product: int
    visitor: str
    at: datetime


@dataset(index=True)
class HourlyViews:
    """A row for each hour in which a product was seen: the window is a key."""

    product: int = field(key=True)
    window: Window = field(key=True)
    views: int
    visitors: int
    at: datetime

    @pipeline
    @inputs(Views)
    def by_hour(cls, views: Dataset):
        return views.groupby("product", window=Tumbling("1h")).aggregate(
            views=Count(), visitors=Count(of="visitor", unique=True, approx=True)
        )


@dataset(index=True)
class BestHours:
    product: int = field(key=True)
    best: int
    total: int
    at: datetime

    @pipeline
    @inputs(HourlyViews)
    def best_ever(cls, hours: Dataset):
        ever = Hopping("forever", "1h")
        return hours.groupby("product").aggregate(
            best=Max(of="views", window=ever, default=0), total=Sum(of="views", window=ever)
        )


@featureset
class Product:
    product: int
    hour: Window
    views: int
    visitors: int
    best: int = F(BestHours.best, default=0)
    total: int = F(BestHours.total, default=0)
    trending: bool = F((col("views") > 1) & (col("views") >= col("best")))

    @extractor(deps=[HourlyViews])
    @inputs("product")
    @outputs("hour", "views", "visitors")
    def last_hour(cls, ts, product):
        hours = pd.Series([bucketize(at, "1h") for at in ts])
        rows, _ = HourlyViews.lookup(ts, product=product, window=hours, fields=["views", "visitors"])
        return rows.fillna(0).astype("int64").assign(hour=hours)


LOGS = [
    ("shop_web", "views", [
        {"product": 1, "visitor": "a", "at": "2026-01-05T10:05:00Z"},
        {"product": 1, "visitor": "b", "at": "2026-01-05T10:20:00Z"},
        {"product": 1, "visitor": "a", "at": "2026-01-05T10:50:00Z"},
        {"product": 1, "visitor": "a", "at": "2026-01-05T11:10:00Z"},
        {"product": 2, "visitor": "c", "at": "2026-01-05T12:30:00Z"},
        {"product": 3, "visitor": "c", "at": "2026-01-05T14:10:00Z"},
    ]),
]  # fmt: skip
OUTPUTS = ["Product.views", "Product.visitors", "Product.best", "Product.total", "Product.trending"]
ASKS = [
    {  # The hour until eleven is over, but no hour before it was known then.
        "at": "2026-01-05T11:30:00Z",
        "inputs": {"Product.product": [1, 2]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[3, 0], [2, 0], [0, 0], [0, 0], [True, False]])),
    },
    {  # From twelve on its first hour is the best.
        "at": "2026-01-05T12:15:00Z",
        "inputs": {"Product.product": [1]},
        "outputs": [*OUTPUTS, "Product.hour"],
        "expected": {
            **dict(zip(OUTPUTS, [[1], [1], [3], [3], [False]])),
            "Product.hour": [{"begin": datetime.fromisoformat("2026-01-05T11:00:00Z"),
                              "end": datetime.fromisoformat("2026-01-05T12:00:00Z")}],
        },
    },
    {
        "at": "2026-01-05T14:30:00Z",
        "inputs": {"Product.product": [1, 2, 3]},
        "outputs": OUTPUTS,
        "expected": dict(zip(OUTPUTS, [[0, 0, 0], [0, 0, 0], [3, 1, 0], [4, 1, 0], [False, False, False]])),
    },
]  # fmt: skip
