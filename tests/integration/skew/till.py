"""Payments at tills: features that can be computed again, and some that can't."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc, no-untyped-def"

import random
from datetime import UTC, datetime
from typing import Any, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, LastK, Stddev, Sum, dataset, field, index, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import Featureset, extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import inputs, outputs

__owner__ = "skew@example.com"


def definitions(version: int, *, factor: int = 2) -> tuple[list[Dataset], list[Featureset]]:
    """Define payments; topics of different versions have different names, since all tests share a broker."""
    hook = Webhook(name="tills")

    @source(hook.endpoint("payments"), disorder="14d", cdc="append")
    @dataset(index=False, version=version)
    class Payments:
        user: int
        price: float
        item: str
        at: datetime

    @source(hook.endpoint("payers"), disorder="14d", cdc="upsert")
    @dataset(index=True, version=version)
    class Payers:
        user: int = field(key=True, erase_key=True)
        city: str
        age: Optional[int]
        at: datetime

    @source(hook.endpoint("names"), disorder="14d", cdc="upsert")
    @index(online=True, offline=None)
    @dataset(version=version)
    class Names:
        user: int = field(key=True)
        name: str
        at: datetime

    @dataset(index=True, version=version)
    class Spent:
        user: int = field(key=True)
        n: int
        total: float
        mean: float
        spread: float
        last: list[str]
        at: datetime

        @pipeline
        @inputs(Payments)
        def make(cls: Any, payments: Any) -> Any:
            return payments.groupby("user").aggregate(
                n=Count(window=Continuous("forever")),
                total=Sum(of="price", window=Continuous("1h")),
                mean=Average(of="price", window=Continuous("6h"), default=-1.0),
                spread=Stddev(of="price", window=Continuous("1d"), default=-1.0),
                last=LastK(of="item", limit=3, dedup=False, window=Continuous("1d")),
            )

    @featureset
    class Till:
        user: int
        city: Optional[str] = F(Payers.city)
        age: Optional[int] = F(Payers.age)
        name: Optional[str] = F(Names.name)
        n: int = F(Spent.n, default=0)
        total: Optional[float] = F(Spent.total)
        mean: Optional[float] = F(Spent.mean)
        spread: Optional[float] = F(Spent.spread)
        last: Optional[list[str]] = F(Spent.last)
        rich: bool = F(col("total").fillnull(0.0) > 50.0)
        scaled: float
        chance: float
        seconds: float

        @extractor(version=factor)
        @inputs("n", "mean")
        @outputs("scaled")
        def scale(cls: Any, ts: Any, n: Any, mean: Any) -> Any:
            return (n.astype(float) * mean.fillna(-1.0).astype(float).round(3) * factor).rename("scaled")

        @extractor
        @inputs("n")
        @outputs("chance")
        def draw(cls: Any, ts: Any, n: Any) -> Any:
            return pd.Series([random.random() for _ in n], name="chance")

        @extractor
        @inputs("n")
        @outputs("seconds")
        def read_clock(cls: Any, ts: Any, n: Any) -> Any:
            return pd.Series([datetime.now(UTC).timestamp()] * len(n), name="seconds")

    return [Payments, Payers, Names, Spent], [Till]
