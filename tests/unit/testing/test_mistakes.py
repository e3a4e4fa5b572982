"""Mistakes at commit, log, query and lookup: the class of the exception, and the facts in its message."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# Checkers see classes where decorators make datasets and featuresets; wrong arguments are what is tested.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined, arg-type, list-item, assignment, no-redef"
# mypy: disable-error-code="func-returns-value"

from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from caraway import F, dataset, extractor, featureset, field
from caraway.client import Client
from caraway.connectors import source
from caraway.errors import (
    CommitError,
    CommitTypeError,
    ConflictError,
    DefinitionError,
    DefinitionTypeError,
    ExtractorError,
    InvalidInputError,
    UnknownEntityError,
)
from caraway.expr import col
from caraway.lib import inputs, meta, outputs
from caraway.testing import MockClient
from tests.unit.testing import shop
from tests.unit.testing.shop import (
    T0,
    Buyer,
    Notes,
    OfflineNotes,
    OldNotes,
    OnlineNotes,
    Orders,
    Request,
    Spending,
    Users,
    Vault,
    filled,
)

__owner__ = "tests@example.com"

ONE = pd.DataFrame({"Request.user": [1], "Request.limit": [1.0]})
USER = pd.DataFrame({"user": [1]})
TS = pd.Series([T0])


@featureset
class Twice:
    x: int

    @extractor
    @outputs("x")
    def one(cls, ts):
        return pd.Series([1] * len(ts), name="x")

    @extractor
    @outputs("x")
    def other(cls, ts):
        return pd.Series([2] * len(ts), name="x")


@featureset
class Circle:
    a: int = F(col("b") + 1)
    b: int

    @extractor
    @inputs("a")
    @outputs("b")
    def back(cls, ts, a):
        return a.rename("b")


@featureset
class NeedsRequest:
    double: int

    @extractor
    @inputs(Request.user)
    @outputs("double")
    def compute(cls, ts, user):
        return (user * 2).rename("double")


@featureset
class Broken:
    user: int
    raises: int
    too_few: int
    peeks: Optional[str]

    @extractor
    @inputs("user")
    @outputs("raises")
    def divide(cls, ts, user):
        raise ZeroDivisionError("by nothing")

    @extractor
    @inputs("user", "raises")
    @outputs("too_few")
    def takes_one(cls, ts, user):
        return user.rename("too_few")

    @extractor
    @inputs("user")
    @outputs("peeks")
    def peek(cls, ts, user):
        return Users.lookup(ts, user=user, fields=["name"])[0]["name"].rename("peeks")


def another_users(version: int = 1) -> Any:
    @source(shop.hook.endpoint("users"), disorder="1d", cdc="upsert")
    @dataset(index=True, version=version)
    class Users:
        user: int = field(key=True)
        name: str
        at: datetime

    return Users


def fewer_features() -> Any:
    @featureset
    class Request:
        user: int

    return Request


def deleted_users() -> Any:
    @meta(owner="a@b.co", deleted=True)
    @dataset(index=True)
    class Users:
        user: int = field(key=True)
        at: datetime

    return Users


COMMITS: list[tuple[str, Callable[[MockClient], Any], type[Exception], list[str]]] = [
    ("no message", lambda c: c.commit([Users]), TypeError, ["message"]),
    ("a set as a dataset", lambda c: c.commit("x", [Request]), DefinitionTypeError, ["datasets", "Request"]),
    ("a dataset as a set", lambda c: c.commit("x", featuresets=[Users]), DefinitionTypeError, ["featuresets", "Users"]),
    ("no list", lambda c: c.commit("x", Users), DefinitionTypeError, ["datasets", "list"]),
    ("a dataset twice", lambda c: c.commit("x", [Users, Users]), CommitError, ["Users", "twice"]),
    ("a set twice", lambda c: c.commit("x", featuresets=[Request, Request]), CommitError, ["Request", "twice"]),
    ("a pipeline's input", lambda c: c.commit("x", [Spending]), CommitError, ["Spending", "aggregate", "Orders"]),
    ("a dataset looked up", lambda c: c.commit("x", [], [Request, Buyer]), CommitError, ["Buyer", "Users"]),
    (
        "a set of inputs",
        lambda c: c.commit("x", [], [NeedsRequest]),
        CommitError,
        ["NeedsRequest", "compute", "Request"],
    ),
    ("two extractors", lambda c: c.commit("x", [], [Twice]), CommitTypeError, ["Twice.x", "one", "other"]),
    ("a circle", lambda c: c.commit("x", [], [Circle]), CommitError, ["Circle", "back"]),
    ("a negated env", lambda c: c.commit("x", [Users], env="~prod"), DefinitionError, ["env", "~prod"]),
    ("an empty env", lambda c: c.commit("x", [Users], env=""), DefinitionError, ["env"]),
    ("no env", lambda c: c.commit("x", [Users], env=3), DefinitionError, ["env", "3"]),
    (
        "a deleted dataset",
        lambda c: c.commit("x", [deleted_users(), Orders, Spending], shop.FEATURESETS),
        CommitError,
        ["Buyer", "Users"],
    ),
    (
        "a changed definition",
        lambda c: c.commit("x", [another_users()], incremental=True),
        CommitError,
        ["Users", "version"],
    ),
    (
        "a version that goes down",
        lambda c: c.commit("x", [another_users(0)], incremental=True),
        CommitError,
        ["Users", "version", "0", "1"],
    ),
    (
        "a lost feature",
        lambda c: c.commit("x", [], [fewer_features()], incremental=True),
        CommitError,
        ["Request", "limit"],
    ),
    ("a branch that isn't there", lambda c: (c.checkout("gone"), c.commit("x")), UnknownEntityError, ["gone", "main"]),
]

LOGS: list[tuple[str, Callable[[MockClient], Any], type[Exception], list[str]]] = [
    ("an unknown endpoint", lambda c: c.log("shop", "user", ONE), UnknownEntityError, ["user", "shop/users"]),
    ("an unknown webhook", lambda c: c.log("shopp", "users", ONE), UnknownEntityError, ["shopp", "shop/users"]),
    ("a missing column", lambda c: c.log("shop", "users", USER), InvalidInputError, ["Users", "name"]),
    (
        "a missing time stamp",
        lambda c: c.log("shop", "orders", pd.DataFrame({"user": [1], "amount": [1.0]})),
        InvalidInputError,
        ["Orders", "at"],
    ),
    (
        "text for a number",
        lambda c: c.log("shop", "orders", shop.orders((1, "much", T0))),
        InvalidInputError,
        ["Orders", "amount", "much"],
    ),
    (
        "a null that may not be",
        lambda c: c.log("shop", "users", shop.users((1, None, None, T0))),
        InvalidInputError,
        ["Users", "name", "null"],
    ),
    (
        "a time that is none",
        lambda c: c.log("shop", "users", shop.users((1, "Ann", None, "soon"))),
        InvalidInputError,
        ["Users", "at", "soon"],
    ),
]

QUERIES: list[tuple[str, Callable[[MockClient], Any], type[Exception], list[str]]] = [
    ("a set as input", lambda c: c.query([Request], [Buyer.name], ONE), InvalidInputError, ["Request", "input"]),
    ("a set's name as input", lambda c: c.query(["Request"], [Buyer.name], ONE), InvalidInputError, ["Request"]),
    ("a number as input", lambda c: c.query([3], [Buyer.name], ONE), InvalidInputError, ["3", "int"]),
    ("a number as output", lambda c: c.query([Request.user], [3], ONE), InvalidInputError, ["output", "3"]),
    ("too many dots", lambda c: c.query([Request.user], ["a.b.c"], ONE), InvalidInputError, ["a.b.c"]),
    (
        "one feature, no list",
        lambda c: c.query([Request.user], Buyer.name, ONE),
        InvalidInputError,
        ["outputs", "list"],
    ),
    ("no frame", lambda c: c.query([Request.user], [Buyer.name], {"a": [1]}), InvalidInputError, ["dict", "DataFrame"]),
    ("a missing column", lambda c: c.query([Request.user], [Buyer.name], USER), InvalidInputError, ["Request.user"]),
    ("an unknown set", lambda c: c.query([Request.user], ["Buyr"], ONE), KeyError, ["Buyr", "Buyer"]),
    (
        "an unknown feature",
        lambda c: c.query([Request.user], ["Buyer.nam"], ONE),
        ValueError,
        ["Buyer.nam", "Buyer.name"],
    ),
    ("no way to compute", lambda c: c.query([], [Buyer.name], ONE), ValueError, ["Request.user", "Buyer.name"]),
    (
        "nothing to compute from",
        lambda c: c.query([Request.user], [Request.limit], ONE),
        ValueError,
        ["Request.limit", "extractor"],
    ),
    ("log", lambda c: c.query([Request.user], [Buyer.name], ONE, log=True), NotImplementedError, ["log"]),
    (
        "text for a number",
        lambda c: c.query([Request.user], [Buyer.name], pd.DataFrame({"Request.user": ["one"]})),
        InvalidInputError,
        ["Request.user", "int", "one"],
    ),
    (
        "no offline index",
        lambda c: c.query_offline([Request.user], [Notes.online], "t", ONE.assign(t=T0)),
        ValueError,
        ["OnlineNotes", "offline"],
    ),
    (
        "no online index",
        lambda c: c.query([Request.user], [OldNotes.offline], ONE),
        ValueError,
        ["OfflineNotes", "online"],
    ),
    (
        "an extractor that raises",
        lambda c: c.query([Broken.user], [Broken.raises], pd.DataFrame({"Broken.user": [1]})),
        ExtractorError,
        ["Broken", "divide", "by nothing"],
    ),
    (
        "an extractor with too few parameters",
        lambda c: c.query(
            [Broken.user, Broken.raises], [Broken.too_few], pd.DataFrame({"Broken.user": [1], "Broken.raises": [2]})
        ),
        ExtractorError,
        ["Broken", "takes_one"],
    ),
    (
        "a dataset that isn't among the deps",
        lambda c: c.query([Broken.user], [Broken.peeks], pd.DataFrame({"Broken.user": [1]})),
        ExtractorError,
        ["Broken", "peek", "Users", "deps"],
    ),
    (
        "a secret that isn't there",
        lambda c: c.query([Vault.user], [Vault.opened], pd.DataFrame({"Vault.user": [1]})),
        ExtractorError,
        ["Vault", "open", "key"],
    ),
    (
        "no rows to come from",
        lambda c: c.query_offline([Request.user], [Buyer.name], "t"),
        ValueError,
        ["input_dataframe"],
    ),
    (
        "no such time stamp",
        lambda c: c.query_offline([Request.user], [Buyer.name], "t", ONE),
        KeyError,
        ["t", "Request.user"],
    ),
    (
        "S3",
        lambda c: c.query_offline([Request.user], [Buyer.name], "t", ONE, output_s3="bucket"),
        AssertionError,
        ["output_s3"],
    ),
    (
        "a map of columns",
        lambda c: c.query_offline([Request.user], [Buyer.name], "t", ONE, feature_to_column_map={}),
        AssertionError,
        ["feature_to_column_map"],
    ),
    (
        "times that are none",
        lambda c: c.query_offline([Request.user], [Buyer.name], "t", ONE.assign(t="soon")),
        InvalidInputError,
        ["timestamps", "soon"],
    ),
]

READS: list[tuple[str, Callable[[MockClient], Any], type[Exception], list[str]]] = [
    ("an unknown dataset", lambda c: c.lookup("User", USER), KeyError, ["User", "Users"]),
    ("no dataset", lambda c: c.lookup(3, USER), TypeError, ["3"]),
    ("keys that are no frame", lambda c: c.lookup(Users, [1]), ValueError, ["Users", "keys", "list"]),
    ("a missing key", lambda c: c.lookup(Users, pd.DataFrame({"id": [1]})), ValueError, ["Users", "user"]),
    ("an unknown field", lambda c: c.lookup(Users, USER, ["nam"]), ValueError, ["Users", "nam", "name"]),
    ("no keys at all", lambda c: c.lookup(Orders, USER), ValueError, ["Orders", "keys"]),
    ("too many times", lambda c: c.lookup(Users, USER, timestamps=[T0, T0]), ValueError, ["2", "1"]),
    ("one time", lambda c: c.lookup(Users, USER, timestamps="2024-05-01"), ValueError, ["timestamps", "str"]),
    (
        "no offline index",
        lambda c: c.lookup(OnlineNotes, USER, timestamps=[T0]),
        ValueError,
        ["OnlineNotes", "offline"],
    ),
    ("no online index", lambda c: c.lookup(OfflineNotes, USER), ValueError, ["OfflineNotes", "online"]),
    ("an unknown dataset to show", lambda c: c.inspect("User"), ValueError, ["User", "Users"]),
    ("an unknown secret", lambda c: c.get_secret("x"), KeyError, ["x"]),
    ("an unknown secret to forget", lambda c: c.delete_secret("x"), KeyError, ["x"]),
    ("no dataset to erase from", lambda c: c.erase(3, USER), TypeError, ["3"]),
    ("no erase key", lambda c: c.erase(Users, pd.DataFrame({"name": ["Ann"]})), ValueError, ["Users", "name", "user"]),
    ("a missing erase key", lambda c: c.erase("Users", pd.DataFrame([{}])), ValueError, ["Users", "user"]),
    (
        "an erase key that is null",
        lambda c: c.erase(Users, pd.DataFrame({"user": [None]})),
        ValueError,
        ["user", "null"],
    ),
    ("a dataset without erase keys", lambda c: c.erase(Spending, USER), ValueError, ["Spending", "erase_key"]),
    ("an unknown entity", lambda c: c.xray("User"), KeyError, ["User", "Users"]),
    ("an unknown property", lambda c: c.xray("Users", fields=["nam"]), ValueError, ["nam", "name"]),
    ("a branch that is there", lambda c: c.init_branch("main"), ValueError, ["main"]),
    ("a clone onto itself", lambda c: c.clone_branch("main", "main"), ConflictError, ["main"]),
]

DIRECT: list[tuple[str, Callable[[], Any], type[Exception], list[str]]] = [
    ("without keys", lambda: Orders.lookup(TS, user=USER["user"]), Exception, ["Orders", "keys"]),
    ("positional", lambda: Users.lookup(TS, USER["user"]), ValueError, ["Users", "user"]),  # type: ignore[call-arg]
    ("a missing key", lambda: Users.lookup(TS), ValueError, ["Users", "user"]),
    ("a key that is no series", lambda: Users.lookup(TS, user=[1]), ValueError, ["Users", "user", "list"]),
    ("a time that is none", lambda: Users.lookup(USER["user"], user=USER["user"]), ValueError, ["Users", "ts"]),
    ("a time that is no series", lambda: Users.lookup([T0], user=USER["user"]), ValueError, ["Users", "ts", "list"]),
    ("lengths", lambda: Users.lookup(TS, user=pd.Series([1, 2])), ValueError, ["Users", "1", "2"]),
    ("an unknown field", lambda: Users.lookup(TS, user=USER["user"], fields=["nam"]), ValueError, ["Users", "nam"]),
    ("an unknown keyword", lambda: Users.lookup(TS, user=USER["user"], x=USER["user"]), ValueError, ["Users", "x"]),
    ("no online index", lambda: OfflineNotes.lookup(TS, user=USER["user"]), ValueError, ["OfflineNotes", "online"]),
]


def everything() -> MockClient:
    client = filled()
    client.commit("more", [OnlineNotes, OfflineNotes], [Notes, OldNotes, Broken, Vault], incremental=True)
    return client


def check(call: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert [fact for fact in facts if fact not in str(raised.value)] == [], str(raised.value)


@pytest.mark.spec("featuresets:12:2", "featuresets:5.1b:2", "featuresets:5.1b:3", "featuresets:5.1b:4")
@pytest.mark.parametrize(("call", "error", "facts"), [pytest.param(*case, id=name) for name, *case in COMMITS])
def test_commit(call: Callable[[MockClient], Any], error: type[Exception], facts: list[str]) -> None:
    client = filled()
    check(lambda: call(client), error, facts)
    client.checkout("main")
    assert len(client.get_dataset_df("Users")) == 3, "a commit that fails changes nothing"


@pytest.mark.spec("featuresets:9.2:6")
@pytest.mark.parametrize(("call", "error", "facts"), [pytest.param(*case, id=name) for name, *case in LOGS])
def test_log(call: Callable[[MockClient], Any], error: type[Exception], facts: list[str]) -> None:
    client = filled()
    check(lambda: call(client), error, facts)
    assert len(client.get_dataset_df("Users")) == len(client.get_dataset_df("Orders")) == 3


@pytest.mark.spec(
    "featuresets:12:3", "featuresets:5.3:log", "featuresets:9.2:7", "featuresets:5.3:1", "featuresets:5.3:2"
)
@pytest.mark.spec("featuresets:5.3:3", "featuresets:5.5:input_s3, output_s3", "featuresets:5.5:feature_to_column_map")
@pytest.mark.parametrize(("call", "error", "facts"), [pytest.param(*case, id=name) for name, *case in QUERIES])
def test_query(call: Callable[[MockClient], Any], error: type[Exception], facts: list[str]) -> None:
    client = everything()
    check(lambda: call(client), error, facts)


@pytest.mark.spec("featuresets:5.6:1", "featuresets:5.6:2", "featuresets:5.6:3", "featuresets:5.6:4")
@pytest.mark.parametrize(("call", "error", "facts"), [pytest.param(*case, id=name) for name, *case in READS])
def test_read(call: Callable[[MockClient], Any], error: type[Exception], facts: list[str]) -> None:
    client = everything()
    check(lambda: call(client), error, facts)


@pytest.mark.spec(*(f"datasets:4:{row}" for row in (1, 2, 3, 4, 5, 8, 9, 10)))
@pytest.mark.parametrize(("call", "error", "facts"), [pytest.param(*case, id=name) for name, *case in DIRECT])
def test_lookup_in_a_test(call: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    client = everything()
    check(call, error, facts)
    assert isinstance(client, Client)


@pytest.mark.spec("datasets:4:6", "datasets:4:7")
def test_lookup_of_what_is_not_committed() -> None:
    client = MockClient()
    client.commit("x", [Orders])
    check(lambda: Users.lookup(TS, user=USER["user"]), ValueError, ["Users", "Orders"])
