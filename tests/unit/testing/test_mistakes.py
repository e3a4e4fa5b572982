"""Mistakes at commit, log, query and lookup: the class of the exception, and the facts in its message."""


# Checkers see classes where decorators make datasets and featuresets; wrong arguments are what is tested.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined, arg-type, list-item, assignment, no-redef"
# mypy: disable-error-code="func-returns-value"

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from caraway import dataset, field
from caraway.connectors import source
from caraway.errors import (
    CommitError,
    ConflictError,
    DefinitionError,
    DefinitionTypeError,
    ExtractorError,
    InvalidInputError,
    UnknownEntityError,
)
from caraway.testing import MockClient
from tests.unit.refusals import ROW, check
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
VAULT = pd.DataFrame({"Vault.user": [1]})
TS = pd.Series([T0])


def another_users() -> Any:
    @source(shop.hook.endpoint("users"), disorder="1d", cdc="upsert")
    @dataset(index=True)
    class Users:
        user: int = field(key=True)
        name: str
        at: datetime

    return Users


Row = tuple[str, Callable[[MockClient], Any], type[Exception], str]


def commit(*datasets: Any, **options: Any) -> Callable[[MockClient], Any]:
    return lambda c: c.commit("x", list(datasets), **options)


def log(endpoint: str, frame: pd.DataFrame, webhook: str = "shop") -> Callable[[MockClient], Any]:
    return lambda c: c.log(webhook, endpoint, frame)


def query(inputs: Any, outputs: Any, frame: Any = ONE, **options: Any) -> Callable[[MockClient], Any]:
    return lambda c: c.query(inputs, outputs, frame, **options)


def offline(*frame: Any, outputs: Any = (Buyer.name,), **options: Any) -> Callable[[MockClient], Any]:
    return lambda c: c.query_offline([Request.user], list(outputs), "t", *frame, **options)


COMMITS: list[Row] = [
    ("no message", lambda c: c.commit([Users]), TypeError, "message"),
    ("a set as a dataset", commit(Request), DefinitionTypeError, "datasets|Request"),
    ("a dataset as a set", commit(featuresets=[Users]), DefinitionTypeError, "featuresets|Users"),
    ("no list", lambda c: c.commit("x", Users), DefinitionTypeError, "datasets|list"),
    ("a pipeline's input", commit(Spending), CommitError, "Spending|aggregate|Orders"),
    ("a negated env", commit(Users, env="~prod"), DefinitionError, "env|~prod"),
    ("an empty env", commit(Users, env=""), DefinitionError, "env"),
    ("no env", commit(Users, env=3), DefinitionError, "env|3"),
    ("a changed definition", commit(another_users(), incremental=True), CommitError, "Users|version"),
    ("a branch that isn't there", lambda c: (c.checkout("gone"), c.commit("x")), UnknownEntityError, "gone|main"),
]

LOGS: list[Row] = [
    ("an unknown endpoint", log("user", ONE), UnknownEntityError, "user|shop/users"),
    ("an unknown webhook", log("users", ONE, "shopp"), UnknownEntityError, "shopp|shop/users"),
    ("a missing column", log("users", USER), InvalidInputError, "Users|name"),
    ("a missing time stamp", log("orders", USER.assign(amount=1.0)), InvalidInputError, "Orders|at"),
    ("text for a number", log("orders", shop.orders((1, "much", T0))), InvalidInputError, "Orders|amount|much"),
    ("a null that may not be", log("users", shop.users((1, None, None, T0))), InvalidInputError, "Users|name|null"),
    ("a time that is none", log("users", shop.users((1, "Ann", None, "soon"))), InvalidInputError, "Users|at|soon"),
]

BY, NAME = [Request.user], [Buyer.name]
TEXT = pd.DataFrame({"Request.user": ["one"]})
QUERIES: list[Row] = [
    ("a set as input", query([Request], NAME), InvalidInputError, "Request|input"),
    ("a set's name as input", query(["Request"], NAME), InvalidInputError, "Request"),
    ("a number as input", query([3], NAME), InvalidInputError, "3|int"),
    ("a number as output", query(BY, [3]), InvalidInputError, "output|3"),
    ("too many dots", query(BY, ["a.b.c"]), InvalidInputError, "a.b.c"),
    ("one feature, no list", query(BY, Buyer.name), InvalidInputError, "outputs|list"),
    ("no frame", query(BY, NAME, {"a": [1]}), InvalidInputError, "dict|DataFrame"),
    ("a missing column", query(BY, NAME, USER), InvalidInputError, "Request.user"),
    ("log", query(BY, NAME, log=True), NotImplementedError, "log"),
    ("text for a number", query(BY, NAME, TEXT), InvalidInputError, "Request.user|int|one"),
    ("no offline index", offline(ONE.assign(t=T0), outputs=[Notes.online]), ValueError, "OnlineNotes|offline"),
    ("no online index", query(BY, [OldNotes.offline]), ValueError, "OfflineNotes|online"),
    ("no such secret", query([Vault.user], [Vault.opened], VAULT), ExtractorError, "Vault|open|key"),
    ("no rows to come from", offline(), ValueError, "input_dataframe"),
    ("no such time stamp", offline(ONE), KeyError, "t|Request.user"),
    ("S3", offline(ONE, output_s3="bucket"), AssertionError, "output_s3"),
    ("a map of columns", offline(ONE, feature_to_column_map={}), AssertionError, "feature_to_column_map"),
    ("times that are none", offline(ONE.assign(t="soon")), InvalidInputError, "timestamps|soon"),
]

READS: list[Row] = [
    ("no dataset", lambda c: c.lookup(3, USER), TypeError, "3"),
    ("keys that are no frame", lambda c: c.lookup(Users, [1]), ValueError, "Users|keys|list"),
    ("one time", lambda c: c.lookup(Users, USER, timestamps="2024-05-01"), ValueError, "timestamps|str"),
    ("no online index", lambda c: c.lookup(OfflineNotes, USER), ValueError, "OfflineNotes|online"),
    ("an unknown dataset to show", lambda c: c.inspect("User"), ValueError, "User|Users"),
    ("an unknown secret", lambda c: c.get_secret("x"), KeyError, "x"),
    ("an unknown secret to forget", lambda c: c.delete_secret("x"), KeyError, "x"),
    ("no dataset to erase from", lambda c: c.erase(3, USER), TypeError, "3"),
    ("no erase key", lambda c: c.erase(Users, pd.DataFrame({"name": ["Ann"]})), ValueError, "Users|name|user"),
    ("a missing erase key", lambda c: c.erase("Users", pd.DataFrame([{}])), ValueError, "Users|user"),
    ("an erase key that is null", lambda c: c.erase(Users, pd.DataFrame({"user": [None]})), ValueError, "user|null"),
    ("a dataset without erase keys", lambda c: c.erase(Spending, USER), ValueError, "Spending|erase_key"),
    ("an unknown entity", lambda c: c.xray("User"), KeyError, "User|Users"),
    ("an unknown property", lambda c: c.xray("Users", fields=["nam"]), ValueError, "nam|name"),
    ("a branch that is there", lambda c: c.init_branch("main"), ValueError, "main"),
    ("a clone onto itself", lambda c: c.clone_branch("main", "main"), ConflictError, "main"),
]


def everything() -> MockClient:
    client = filled()
    client.commit("more", [OnlineNotes, OfflineNotes], [Notes, OldNotes, Vault], incremental=True)
    return client


def named(rows: list[Row]) -> pytest.MarkDecorator:
    """Return a decorator with the rows as cases, called by the names that they begin with."""
    return pytest.mark.parametrize(ROW, [pytest.param(*row, id=name) for name, *row in rows])


@pytest.mark.spec("featuresets:12:2", "featuresets:5.1b:2")
@named(COMMITS)
def test_commit(call: Callable[[MockClient], Any], error: type[Exception], facts: str) -> None:
    client = filled()
    check(lambda: call(client), error, facts)
    client.checkout("main")
    assert len(client.get_dataset_df("Users")) == 3, "a commit that fails changes nothing"


@pytest.mark.spec("featuresets:9.2:6")
@named(LOGS)
def test_log(call: Callable[[MockClient], Any], error: type[Exception], facts: str) -> None:
    client = filled()
    check(lambda: call(client), error, facts)
    assert len(client.get_dataset_df("Users")) == len(client.get_dataset_df("Orders")) == 3


@pytest.mark.spec(
    "featuresets:12:3", "featuresets:5.3:log", "featuresets:9.2:7", "featuresets:5.3:1", "featuresets:5.3:2"
)
@pytest.mark.spec("featuresets:5.3:3", "featuresets:5.5:input_s3, output_s3", "featuresets:5.5:feature_to_column_map")
@named(QUERIES)
def test_query(call: Callable[[MockClient], Any], error: type[Exception], facts: str) -> None:
    client = everything()
    check(lambda: call(client), error, facts)


@pytest.mark.spec("featuresets:5.6:1", "featuresets:5.6:2", "featuresets:5.6:3", "featuresets:5.6:4")
@named(READS)
def test_read(call: Callable[[MockClient], Any], error: type[Exception], facts: str) -> None:
    client = everything()
    check(lambda: call(client), error, facts)


@pytest.mark.spec("datasets:4:6", "datasets:4:7", "datasets:4:8")
def test_lookup_of_what_is_not_there() -> None:
    client = everything()
    check(lambda: OfflineNotes.lookup(TS, user=USER["user"]), ValueError, "OfflineNotes|online")
    client.commit("x", [Orders])
    check(lambda: Users.lookup(TS, user=USER["user"]), ValueError, "Users|Orders")
