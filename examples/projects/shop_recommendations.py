"""Recommendations: how well does a product fit what this visitor looked at last?

Products are vectors from a model that is trained at night; a visitor is the mean of the last three of them.
"""

from datetime import datetime
from typing import List

import numpy as np
import pandas as pd

from caraway.connectors import S3, Webhook, source
from caraway.datasets import Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Embedding
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "recommendations@shop.example"

web = Webhook(name="shop_web")
models = Webhook(name="shop_models")
lake = S3(name="model_lake", role_arn="arn:aws:iam::123456789012:role/models")


@source(lake.bucket("models", prefix="vectors", format="delta"), disorder="1d", cdc="native", env="production")
@source(models.endpoint("vectors"), disorder="1d", cdc="upsert", env="~production")
@dataset(index=True)
class ProductVectors:
    product: int = field(key=True)
    vector: Embedding[3]
    trained_at: datetime


@source(web.endpoint("views"), disorder="10m", cdc="append")
@dataset
class Views:
    visitor: str
    product: int
    at: datetime


@dataset(index=True)
class Seen:
    visitor: str = field(key=True)
    products: List[int]
    at: datetime

    @pipeline
    @inputs(Views)
    def last_three(cls, views: Dataset):
        return views.groupby("visitor").aggregate(
            products=LastK(of="product", limit=3, dedup=True, window=Continuous("30d"))
        )


@featureset
class Visitor:
    visitor: str
    products: List[int] = F(Seen.products, default=[])
    taste: Embedding[3]

    @extractor(deps=[ProductVectors])
    @inputs("products")
    @outputs("taste")
    def average(cls, ts, products):
        """Look all products of all visitors up at once."""
        owner = np.repeat(np.arange(len(products)), [len(one) for one in products])
        flat = pd.Series([product for one in products for product in one], dtype="Int64")
        rows, found = ProductVectors.lookup(ts.iloc[owner].reset_index(drop=True), product=flat, fields=["vector"])
        known = pd.DataFrame({"owner": owner, "vector": rows["vector"]})[found.to_numpy(dtype=bool)]
        means = {one: np.mean(np.stack(group.to_list()), axis=0) for one, group in known.groupby("owner")["vector"]}
        return pd.Series([means.get(row, np.zeros(3)).tolist() for row in range(len(ts))], name="taste", dtype=object)


@featureset
class Candidate:
    product: int
    vector: Embedding[3] = F(ProductVectors.vector, default=[0.0, 0.0, 0.0])
    seen: bool
    fit: float

    @extractor
    @inputs("vector", Visitor.taste)
    @outputs("fit")
    def dot(cls, ts, vector, taste):
        return pd.Series([float(np.dot(v, t)) for v, t in zip(vector, taste)], name="fit")

    @extractor
    @inputs("product", Visitor.products)
    @outputs("seen")
    def was_seen(cls, ts, product, products):
        return pd.Series([one in some for one, some in zip(product, products)], name="seen")


@featureset
class Rank:
    fit: float = F(Candidate.fit)
    seen: bool = F(Candidate.seen)
    length: float = F((col("fit") * col("fit")).num.sqrt())
    show: bool = F(~col("seen") & (col("length") > 0.5))


ENV = "test"
LOGS = [
    ("shop_models", "vectors", [
        {"product": 10, "vector": [1.0, 0.0, 0.0], "trained_at": "2026-01-01"},
        {"product": 11, "vector": [0.0, 1.0, 0.0], "trained_at": "2026-01-01"},
        {"product": 12, "vector": [1.0, 1.0, 2.0], "trained_at": "2026-01-01"},
        {"product": 10, "vector": [3.0, 0.0, 0.0], "trained_at": "2026-01-07"},
    ]),
    ("shop_web", "views", [
        {"visitor": "ann", "product": 10, "at": "2026-01-05T10:00:00Z"},
        {"visitor": "ann", "product": 11, "at": "2026-01-05T10:01:00Z"},
        {"visitor": "ann", "product": 10, "at": "2026-01-05T10:02:00Z"},
        {"visitor": "ann", "product": 99, "at": "2026-01-05T10:03:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": at,
        "inputs": {"Visitor.visitor": ["ann", "ann", "bob"], "Candidate.product": [12, 10, 12]},
        "outputs": ["Visitor.products", "Visitor.taste", "Rank"],
        "expected": {
            "Visitor.products": [[99, 10, 11], [99, 10, 11], []],
            "Visitor.taste": [[x, 0.5, 0.0], [x, 0.5, 0.0], [0.0, 0.0, 0.0]],
            "Rank.fit": [x + 0.5, fit, 0.0],
            "Rank.seen": [False, True, False],
            "Rank.length": [x + 0.5, fit, 0.0],
            "Rank.show": [True, False, False],
        },
    }
    for at, x, fit in [("2026-01-06T00:00:00Z", 0.5, 0.5), ("2026-01-08T00:00:00Z", 1.5, 4.5)]
]
