"""Tests of definitions on the mock, everything annotated."""

from datetime import UTC, datetime
from typing import Callable, Optional

import pandas as pd

from caraway.lib import secrets
from caraway.testing import MockClient, log, mock
from shop.definitions import Orders, Products, Users
from shop.expressions import arithmetic
from shop.plain import Account, Balances, Moves, Rates
from shop.serving import log as send

T0 = datetime(2024, 5, 1, 12, tzinfo=UTC)


def moves() -> pd.DataFrame:
    return pd.DataFrame({"account": [1, 1], "amount": [2.0, 3.0], "rating": [1, 2], "at": [T0, T0]})


@mock
def test_balance(client: MockClient) -> None:
    client.commit("money", datasets=[Moves, Balances, Rates], featuresets=[Account])
    client.log("bank", "moves", moves())
    answer = client.query([Account.account], [Account.total, Account.grade], pd.DataFrame({"Account.account": [1]}))
    assert answer["Account.total"].tolist() == [5.0]
    rows, found = Balances.lookup(pd.Series([pd.Timestamp(T0)]), account=pd.Series([1]), fields=["total"])
    assert (rows["total"].tolist(), found.tolist()) == ([5.0], [True])


@mock
def test_with_a_fixture(client: MockClient, factor: int, name: Optional[str] = None) -> int:
    client.commit("money", [Moves, Balances])
    log(Moves, moves())
    client.add_secret("token", name or "abc")
    assert secrets.get("token") == (name or "abc")
    return factor * len(client.get_dataset_df("Moves"))


class TestMoney:
    @mock
    def test_empty(self, client: MockClient) -> None:
        client.commit("money", [Moves, Balances, Rates, Users], [Account])
        assert client.get_dataset_df("Balances").empty

    @mock
    def test_factor(self, client: MockClient, factor: int) -> int:
        client.commit("money", [Moves])
        return factor


def run() -> None:
    test_balance()
    assert test_with_a_fixture(factor=2) + test_with_a_fixture(factor=3, name="n") == 10
    TestMoney().test_empty()
    assert TestMoney().test_factor(factor=2) == 2
    without_client: Callable[[], None] = test_balance
    without_client()
    client = MockClient()
    client.commit("orders", [Orders, Products])
    row = {"user": 1, "product": "tea", "amount": 1.0, "stars": None, "channel": "web", "tags": ["a"], "at": T0}
    assert send(client, [row])
    assert str(arithmetic)
