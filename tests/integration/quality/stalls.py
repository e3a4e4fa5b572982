"""Stalls of a market, whose sales are checked: definitions for tests."""

# mypy: disable-error-code="attr-defined, arg-type, assignment, misc, no-untyped-def"

from datetime import datetime
from typing import Any, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Tumbling
from caraway.expr import col
from caraway.lib import (
    Drift,
    expect_column_values_to_be_between,
    expect_column_values_to_match_regex,
    expect_column_values_to_not_be_null,
    expectations,
    inputs,
    meta,
)

OWNER = "quality@example.com"
__owner__ = OWNER


def definitions(version: int, *, mostly: float = 0.9) -> list[Dataset]:
    """Define sales; topics of different versions have different names, since all tests share a broker."""
    hook = Webhook(name="market")

    @source(hook.endpoint("sales"), disorder="14d", cdc="append")
    @meta(drift=Drift(psi=0.3))
    @dataset(version=version)
    class Sales:
        stall: str
        price: Optional[float]
        at: datetime

        @expectations(version=version)
        def sane(cls: Any) -> Any:
            return [
                expect_column_values_to_be_between(str(cls.price), 0, 100, mostly=mostly),
                expect_column_values_to_match_regex(str(cls.stall), "^[a-z]+$", row_condition="price > 1"),
                expect_column_values_to_not_be_null("price", mostly=0.5),
            ]

    @source(hook.endpoint("owners"), disorder="14d", cdc="upsert")
    @meta(tags=["private"])
    @dataset(index=True, version=version)
    class Stalls:
        stall: str = field(key=True, erase_key=True)
        owner: str
        at: datetime

        @expectations
        def named(cls: Any) -> Any:
            return [expect_column_values_to_match_regex("owner", "^[A-Z]")]

    @meta(drift=Drift())
    @dataset(index=True, version=version)
    class Dear:
        stall: str = field(key=True)
        price: float
        at: datetime

        @pipeline
        @inputs(Sales)
        def make(cls: Any, sales: Any) -> Any:
            return sales.dropnull("price").filter(col("price") > 50.0).groupby("stall").latest()

        @expectations
        def bounded(cls: Any) -> Any:
            return [expect_column_values_to_be_between("price", 50, 100, strict_min=True)]

    # A job computes this one, and writes its topic.
    @meta(drift=Drift())
    @dataset(version=version)
    class Twice:
        stall: str
        price: Optional[float]
        at: datetime

        @pipeline
        @inputs(Sales)
        def make(cls: Any, sales: Any) -> Any:
            return sales + sales

        @expectations
        def sane(cls: Any) -> Any:
            return [expect_column_values_to_be_between("price", 0, 100)]

    # An index writes the rows of this one to a topic, because they are checked.
    @dataset(index=True, version=version)
    class Hours:
        stall: str = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Sales)
        def make(cls: Any, sales: Any) -> Any:
            return sales.groupby("stall").aggregate(n=Count(window=Tumbling("1h")))

        @expectations
        def few(cls: Any) -> Any:
            return [expect_column_values_to_be_between("n", 1, 2)]

    return [Sales, Stalls, Dear, Twice, Hours]
