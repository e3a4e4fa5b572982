"""Definitions as in the API's examples: without annotations of what pipelines and extractors take and return."""

from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway import F
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Embedding
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.lib import expect_column_values_to_be_between, expectations, inputs, outputs
from caraway.testing import mock

__owner__ = "bank@example.com"

bank = Webhook(name="bank")


@source(bank.endpoint("moves"), disorder="1d", cdc="append")
@dataset
class Moves:
    account: int
    amount: float
    rating: Optional[int]
    at: datetime

    @expectations
    def sane(cls):
        return [expect_column_values_to_be_between(column=str(cls.amount), min_value=0)]


@dataset(index=True)
class Rates:
    currency: str = field(key=True)
    rate: Decimal[4]
    old: Optional[Decimal[2]]
    vector: Embedding[8]
    vectors: List[Embedding[8]]
    at: datetime


@dataset(index=True)
class Balances:
    account: int = field(key=True)
    total: float
    moves: int
    at: datetime

    @pipeline
    @inputs(Moves)
    def sum_up(cls, moves: Dataset):
        moves = moves.filter(col("amount") != 0.0)
        return moves.groupby("account").aggregate(
            total=Sum(of="amount", window=Continuous("forever")),
            moves=Count(window=Continuous("forever")),
        )


@dataset
class Both:
    account: int
    at: datetime

    @pipeline
    @inputs(Moves, Moves)
    def together(cls, a: Dataset, b: "Dataset[Moves]"):
        return a.select("account") + b.select("account")


@featureset
class Account:
    account: int
    total: float = F(Balances.total, default=0.0)
    moves: Optional[int] = F(Balances.moves)
    rate: Optional[Decimal[4]]
    grade: str

    @extractor(deps=[Rates])
    @inputs("total")
    @outputs("grade")
    def make_grade(cls, ts, total):
        return pd.Series(cls.letters(total), name="grade")

    @classmethod
    def letters(cls, total):
        return ["a" if amount > 1.0 else "b" for amount in total]

    @extractor
    @outputs("rate")
    def no_rate(cls, ts):
        return pd.Series([None] * len(ts), name="rate")


@mock
def test_commit(client):
    client.commit("money", datasets=[Moves, Rates, Balances], featuresets=[Account])
    assert client.query([Account.account], [Account.grade], pd.DataFrame({"Account.account": [1]})).shape == (1, 1)
