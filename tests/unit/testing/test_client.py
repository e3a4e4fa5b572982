"""Committing, logging and reading with the mock client."""

# Checkers see classes where decorators make datasets and featuresets.
# ruff: noqa: ANN201 (definitions as users write them)
# mypy: disable-error-code="arg-type, attr-defined, list-item, no-redef, assignment, no-untyped-def"

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from caraway import dataset, field, pipeline
from caraway.client import Client, Response
from caraway.connectors import source
from caraway.datasets import Dataset, Sum
from caraway.dtypes import Continuous
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.lib import inputs, meta, secrets
from caraway.testing import MockClient, log, mock
from tests.unit.testing import shop
from tests.unit.testing.shop import HOUR, T0, Buyer, Orders, Request, Spending, Users, Vault, commit, committed, filled

__owner__ = "tests@example.com"

LATER = T0 + 3 * HOUR


@source(shop.hook.endpoint("paid"), disorder="1d", cdc="append")
@dataset
class Paid:
    user: int
    card: str = field(erase_key=True)
    amount: float
    at: datetime


@dataset(index=True)
class Spent:
    user: int = field(key=True, erase_key=True)
    amount: float
    at: datetime

    @pipeline
    @inputs(Paid)
    def aggregate(cls, paid: Dataset):
        return paid.groupby("user").aggregate(amount=Sum(of="amount", window=Continuous("forever")))


def ask(client: Any, *outputs: Any, user: int = 1, at: datetime | None = None) -> Any:
    frame = pd.DataFrame({"Request.user": [user], "Request.limit": [None]})
    times = None if at is None else pd.Series([at])
    answer = client.query([Request.user, "Request.limit"], list(outputs), frame, timestamps=times)
    return answer.iloc[0].tolist()


@pytest.mark.spec("featuresets:9.2:8", "featuresets:9.2:4", "featuresets:9.2:5", "featuresets:9.2:3")
def test_a_mock_client_is_a_client_that_answers_like_a_server() -> None:
    client = MockClient()
    assert isinstance(client, Client)
    response = client.commit("x", [Users])
    assert (response.status_code, response["status_code"], response.json()) == (200, 200, {})
    assert (client.is_integration_client(), client.integration_mode()) == (False, "mock")
    client.sleep()
    client.sleep(60)
    failure = client.erase("Nobody", pd.DataFrame({"user": [1]}))
    assert failure.status_code == 404
    assert "Nobody" in failure.json()["error"]


def connects(kind: type[Client], name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether a method of a client uses the connection to a server, itself or by another method."""
    method = inspect.getattr_static(kind, name, None)
    if name in seen or not inspect.isfunction(method):
        return False
    codes = [method.__code__, *(part for part in method.__code__.co_consts if inspect.iscode(part))]
    named = {used for code in codes for used in code.co_names}
    return "_connection" in named or any(connects(kind, used, seen | {name}) for used in named)


def test_no_method_of_a_mock_client_needs_a_server() -> None:
    public = [name for name in dir(Client) if not name.startswith("_")]
    assert sum(connects(Client, name) for name in public) > 30
    assert [name for name in public if connects(MockClient, name)] == []


@mock
def test_what_only_a_server_can_do_is_refused_or_empty(client: MockClient) -> None:
    commit(client)
    assert client.explain_offline([Request.user], ["Buyer"]).status_code == 404
    with pytest.raises(UnknownEntityError, match="there is no offline query 7"):
        client.offline_result("7")
    with pytest.raises(InvalidInputError, match="can't try Orders; ask a server"):
        client.try_sources("Orders")
    assert client.dataset_drift(Orders)["fields"] == []
    assert client.dataset_profile("Orders") is None


@pytest.mark.spec(
    "featuresets:9.2:2", "featuresets:5.1:1", "featuresets:5.1:2", "featuresets:5.1:3", "featuresets:5.1:6"
)
def test_a_commit_is_the_new_content_whatever_preview_and_backfill_say() -> None:
    client = filled()
    assert [d.name for d in client.get_datasets()] == ["Users", "Orders", "Spending"]
    client.commit("", [Users], preview=True, backfill=False)
    assert [d.name for d in client.get_datasets()] == ["Users"]
    assert client.get_featuresets() == []
    assert client.get_dataset_df("Users").empty


@pytest.mark.spec("featuresets:5.1:5", "featuresets:5.1b:1")
def test_an_incremental_commit_keeps_the_rest_and_the_data() -> None:
    client = filled()
    client.commit("more", featuresets=[Vault], incremental=True)
    client.commit("again", [Users], incremental=True)
    assert [f.name for f in client.get_featuresets()] == ["Request", "Buyer", "Vault"]
    assert len(client.get_dataset_df("Users")) == 3
    assert ask(client, Buyer.name, Buyer.orders) == ["Anna", 2]


@pytest.mark.spec("featuresets:5.1b:2")
def test_a_greater_version_resets_the_data_of_that_dataset_alone() -> None:
    @source(shop.hook.endpoint("users"), disorder="1d", cdc="upsert")
    @dataset(index=True, version=2)
    class Users:
        user: int = field(key=True)
        name: str
        city: str | None
        age: int | None
        at: datetime

    client = filled()
    client.commit("ages", [Users], incremental=True)
    assert client.get_dataset_df("Users").empty
    assert len(client.get_dataset_df("Orders")) == 3


def test_what_is_marked_as_deleted_goes() -> None:
    @meta(owner="a@b.co", deleted=True)
    @dataset
    class Orders:
        at: datetime

    client = committed([Users, shop.OnlineNotes])
    client.commit("x", [Users, Orders])
    assert [d.name for d in client.get_datasets()] == ["Users"]
    client.commit("y", [shop.Orders], incremental=True)
    client.commit("z", [Orders], incremental=True)
    assert [d.name for d in client.get_datasets()] == ["Users"]


@pytest.mark.spec("featuresets:5.1:4")
def test_an_environment_selects_sources() -> None:
    @source(shop.hook.endpoint("a"), disorder="1d", cdc="append", env="prod")
    @source(shop.hook.endpoint("b"), disorder="1d", cdc="append", env="~prod")
    @dataset
    class Events:
        value: int
        at: datetime

    client = committed([Events], env="prod")
    frame = pd.DataFrame({"value": [1], "at": [T0]})
    client.log("shop", "a", frame)
    with pytest.raises(UnknownEntityError, match="shop/a"):
        client.log("shop", "b", frame)
    assert len(client.get_dataset_df("Events")) == 1


@pytest.mark.spec("featuresets:9.2:6")
def test_derived_datasets_follow_before_log_returns() -> None:
    client = filled()
    assert ask(client, Buyer.orders, Buyer.is_regular) == [2, True]
    assert client.log("shop", "orders", shop.orders((1, 1.0, LATER), (2, 1.0, LATER))).status_code == 200
    assert ask(client, Buyer.orders) == [3]
    assert client.log("nobody", "nowhere", pd.DataFrame()).status_code == 200


def test_columns_that_are_no_fields_are_ignored_and_values_are_cast() -> None:
    client = MockClient()
    commit(client)
    client.log("shop", "orders", pd.DataFrame({"user": ["7"], "amount": [3], "at": ["2024-05-01"], "more": [object()]}))
    stored = client.get_dataset_df("Orders")
    assert stored.to_dict("list") == {"user": [7], "amount": [3.0], "at": [pd.Timestamp(T0)]}


@pytest.mark.spec("featuresets:9.2:1")
def test_all_rows_ever_are_shown_in_order_on_arrow() -> None:
    client = filled()
    stored = client.get_dataset_df("Users")
    assert stored["name"].tolist() == ["Ann", "Bob", "Anna"]
    assert stored["city"].tolist() == ["Rome", pd.NA, "Oslo"]
    assert all(isinstance(dtype, pd.ArrowDtype) for dtype in stored.dtypes)
    commit(client)
    empty = client.get_dataset_df("Users")
    assert (len(empty), list(empty)) == (0, ["user", "name", "city", "at"])
    with pytest.raises(InvalidInputError, match="Nobody"):
        client.get_dataset_df("Nobody")


def test_reads_are_as_of_their_time_and_the_future_is_invisible() -> None:
    client = filled()
    assert ask(client, Buyer.name, at=T0 - HOUR) == ["nobody"]
    assert ask(client, Buyer.name, Buyer.orders, at=T0) == ["Ann", 1]
    assert ask(client, Buyer.name, Buyer.orders, at=LATER) == ["Anna", 2]
    soon = datetime.now(UTC) + timedelta(days=1)
    client.log("shop", "users", shop.users((1, "Annabel", None, soon)))
    assert ask(client, Buyer.name) == ["Anna"]
    assert ask(client, Buyer.name, at=soon) == ["Annabel"]


def test_a_deleted_row_is_not_found_from_then_on() -> None:
    @source(shop.hook.endpoint("changes"), disorder="1d", cdc="debezium")
    @dataset(index=True)
    class Prices:
        item: int = field(key=True)
        price: float
        at: datetime

    client = committed([Prices])
    row, late = {"item": 1, "price": 2.5, "at": T0.isoformat()}, (T0 + HOUR).timestamp() * 1_000
    client.log("shop", "changes", pd.DataFrame({"op": ["c"], "before": [None], "after": [row], "ts_ms": [late]}))
    client.log("shop", "changes", pd.DataFrame({"op": ["d"], "before": [row], "after": [None], "ts_ms": [late]}))
    times = pd.Series([T0, T0 + HOUR])
    _, found = client.lookup(Prices, pd.DataFrame({"item": [1, 1]}), timestamps=times)
    assert found.tolist() == [True, False]


@pytest.mark.spec("featuresets:5.6:1")
def test_lookup_returns_rows_now_and_at_times() -> None:
    client = filled()
    keys = pd.DataFrame({"user": [1, 9, 1]})
    rows, found = client.lookup(Users, keys)
    assert found.tolist() == [True, False, True]
    assert isinstance(rows, pd.DataFrame)
    assert rows["name"].tolist() == ["Anna", pd.NA, "Anna"]
    assert rows["user"].tolist() == [1, 9, 1]
    assert rows["at"].isna().tolist() == [False, True, False]
    for times in (pd.Series([T0, T0, LATER]), ["2024-05-01", T0.timestamp(), LATER.isoformat()]):
        names, _ = client.lookup("Users", keys.to_dict("records"), ["name"], times)
        assert isinstance(names, pd.Series)
        assert (names.name, names.tolist()) == ("name", ["Ann", pd.NA, "Anna"])
    both, _ = client.lookup(Users, keys, fields=[Users.city, "name"])
    assert list(both) == ["city", "name"]


@pytest.mark.spec("featuresets:5.6:2")
def test_inspect_returns_some_rows() -> None:
    client = filled()
    assert len(client.inspect(Users)) == 3
    assert set(client.inspect("Users", n=2)["name"]) <= {"Ann", "Anna", "Bob"}
    assert len(client.inspect("Users", n=2)) == 2


@pytest.mark.spec("featuresets:5.6:3")
def test_erased_rows_are_gone_and_stay_away() -> None:
    client = filled()
    assert client.erase(Users, pd.DataFrame({"user": [1]})).status_code == 200
    assert ask(client, Buyer.name, Buyer.orders) == ["nobody", 2]
    client.log("shop", "users", shop.users((1, "Ann", None, LATER)))
    assert client.get_dataset_df("Users")["name"].tolist() == ["Bob"]


@pytest.mark.spec("featuresets:5.6:4", "featuresets:5.6:5")
def test_xray_and_lineage_describe_the_branch() -> None:
    client = filled()
    everything = client.xray()
    assert [d["name"] for d in everything["datasets"]] == ["Users", "Orders", "Spending"]
    orders = client.xray("Orders", properties=["name", "rows_ingested", "is_source_dataset"])
    assert orders == {
        "datasets": [{"name": "Orders", "is_source_dataset": True, "rows_ingested": 3}],
        "featuresets": [],
    }
    assert client.xray(featuresets=["Buyer"], fields=["name"])["featuresets"] == [{"name": "Buyer"}]
    lineage = client.lineage()
    kinds = {node["id"]: node["kind"] for node in lineage["nodes"]}
    edges = [(edge["from"], edge["to"]) for edge in lineage["edges"]]
    assert all(end in kinds for edge in edges for end in edge)
    # A pipeline or an extractor stands between what it reads and what it computes.
    ways = {(before, after) for before, middle in edges for again, after in edges if again == middle}
    assert {
        ("dataset:Orders", "dataset:Spending"),
        ("dataset:Spending", "feature:Buyer.mean"),
        ("feature:Buyer.name", "feature:Buyer.greeting"),
    } <= ways


def test_secrets_are_read_inside_extractors() -> None:
    client = committed(featuresets=[Vault])
    assert client.add_secret("key", "sesame").status_code == 200
    assert ask_vault(client) == ["sesame"]
    client.update_secret("key", "open")
    client.update_secret("other", "new")
    assert (client.get_secret("key"), client.get_secret("other")) == ("open", "new")
    assert secrets.get("key") == "open"
    MockClient()
    assert ask_vault(client) == ["open"]
    client.delete_secret("key")
    with pytest.raises(KeyError, match="key"):
        client.get_secret("key")


def ask_vault(client: MockClient) -> list[object]:
    return client.query([Vault.user], [Vault.opened], pd.DataFrame({"Vault.user": [1]}))["Vault.opened"].tolist()


def test_a_lookup_in_a_test_reads_the_current_branch_of_the_newest_client() -> None:
    client = filled()
    rows, found = Users.lookup(pd.Series([T0, LATER]), user=pd.Series([1, 1]))
    assert (rows["name"].tolist(), found.tolist()) == (["Ann", "Anna"], [True, True])
    client.init_branch("empty")
    commit(client)
    assert Users.lookup(pd.Series([T0]), user=pd.Series([1]))[1].tolist() == [False]
    client.checkout("main")
    assert Users.lookup(pd.Series([T0]), user=pd.Series([1]))[1].tolist() == [True]


def test_a_client_that_is_gone_answers_no_lookups() -> None:
    filled()
    with pytest.raises(NotImplementedError, match="MockClient"):
        Users.lookup(pd.Series([T0]), user=pd.Series([1]))


def test_rows_can_be_logged_to_a_dataset_itself() -> None:
    client = MockClient()
    commit(client)
    client.clone_branch("dev", "main")
    log(Orders, shop.orders((1, 10.0, T0)))
    assert len(client.get_dataset_df("Orders")) == 1
    client.checkout("main")
    assert len(client.get_dataset_df("Orders")) == 1
    assert ask(client, Buyer.orders) == [1]


def test_logging_to_a_derived_dataset_replaces_its_content_until_its_input_changes() -> None:
    client = filled()
    log(Spending, pd.DataFrame({"user": [1], "mean": [99.0], "orders": [7], "at": [T0]}))
    assert ask(client, Buyer.mean, Buyer.orders) == [99.0, 7]
    client.log("shop", "orders", shop.orders((1, 1.0, LATER)))
    assert ask(client, Buyer.orders) == [3]


def test_logging_to_a_dataset_itself_is_for_the_environment_of_tests() -> None:
    client = committed([Orders], env="testing")
    log(Orders, shop.orders((1, 10.0, T0)))
    client.commit("x", [Orders], env="prod")
    with pytest.raises(InvalidInputError, match="prod"):
        log(Orders, shop.orders((1, 10.0, T0)))


@mock
def test_the_decorator_gives_a_fresh_client(client: MockClient) -> None:
    assert client.get_datasets() == []
    assert isinstance(client.commit("x"), Response)


def test_an_erasure_downstream_is_as_if_the_rows_had_never_come() -> None:
    client = filled()
    client.commit("paid", datasets=[Paid, Spent], incremental=True)
    client.erase(Users, pd.DataFrame({"user": [1]}), downstream=True)
    assert client.get_dataset_df("Users")["name"].tolist() == ["Bob"]
    with pytest.raises(ValueError, match="its pipeline aggregate would compute the rows again"):
        client.erase(Spent, [{"user": 1}], downstream=True)
    with pytest.raises(ValueError, match="erase key card is no key"):
        client.erase(Paid, [{"card": "a"}], downstream=False)
    client = committed([Paid, Spent])
    rows = [{"user": 1, "card": card, "amount": 2.0, "at": shop.T0} for card in "aab"]
    client.log("shop", "paid", pd.DataFrame(rows))
    # Without `downstream` an erase key that isn't a key reaches what depends on it, since nothing else could.
    assert client.erase(Paid, [{"card": "a"}]).status_code == 200
    client.log("shop", "paid", pd.DataFrame([*rows[:1], {**rows[2], "amount": 3.0}]))
    amounts: Any = client.lookup(Spent, pd.DataFrame({"user": [1]}), ["amount"])[0]
    assert amounts.tolist() == [5.0]
    assert client.get_dataset_df("Paid")["card"].tolist() == ["b", "b"]
