"""A key that was never seen and one that is null have the same features."""

# ruff: noqa: ANN001, ANN201, N805, UP035 (definitions as users write them)
# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, list-item, assignment"

from datetime import datetime
from typing import List, Optional

import pandas as pd
import pytest

from caraway import F, dataset, featureset, field, pipeline
from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, LastK, Max, Sum
from caraway.dtypes import Continuous
from caraway.lib import inputs
from caraway.testing import MockClient

__owner__ = "tests@example.com"

hook = Webhook(name="unseen")
EVER = Continuous("forever")


@source(hook.endpoint("events"), disorder="1d", cdc="append")
@dataset
class Events:
    key: int
    value: int
    at: datetime


@dataset(index=True)
class Totals:
    key: int = field(key=True)
    count: int
    total: int
    newest: List[int]
    mean: float
    most: int
    at: datetime

    @pipeline
    @inputs(Events)
    def aggregate(cls, events):
        return events.groupby("key").aggregate(
            count=Count(window=EVER),
            total=Sum(of="value", window=EVER),
            newest=LastK(of="value", limit=2, dedup=False, window=EVER),
            mean=Average(of="value", window=EVER, default=-1.0),
            most=Max(of="value", window=EVER, default=-2),
        )


@featureset
class Total:
    key: Optional[int]
    count: Optional[int] = F(Totals.count)
    total: Optional[int] = F(Totals.total)
    newest: Optional[List[int]] = F(Totals.newest)
    mean: Optional[float] = F(Totals.mean)
    most: Optional[int] = F(Totals.most)


@pytest.mark.parametrize(
    ("feature", "seen", "unseen"),
    [("count", 1, None), ("total", 5, None), ("newest", [5], None), ("mean", 5.0, -1.0), ("most", 5, -2)],
)
def test_a_null_key_has_the_values_of_one_never_seen(feature: str, seen: object, unseen: object) -> None:
    client = MockClient()
    client.commit("totals", [Events, Totals], [Total])
    client.log("unseen", "events", pd.DataFrame({"key": [1], "value": [5], "at": ["2024-01-01"]}))
    rows = pd.DataFrame({"Total.key": pd.Series([1, 2, None], dtype="Int64")})
    answer = client.query([Total.key], [f"Total.{feature}"], rows).iloc[:, 0].tolist()
    assert [None if value is pd.NA else value for value in answer] == [seen, unseen, unseen]
