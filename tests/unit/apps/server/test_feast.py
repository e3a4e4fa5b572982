"""Feast's shape of requests and answers."""

# ruff: noqa: ANN001, ANN201, DTZ001 (definitions as users write them; the engine of a mock client)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from datetime import datetime
from typing import Any, Optional

import pandas as pd
import pytest

from caraway import F, connectors, dataset, extractor, featureset, field, meta
from caraway.apps.server.handlers.feast import (
    NO_TIME,
    Asked,
    OnlineFeaturesBody,
    entities_of,
    event_times,
    references_of,
    resolve,
    shown,
)
from caraway.apps.server.http.bodies import structured
from caraway.compute.query.event_times import time_columns
from caraway.compute.query.executor import QueryEngine
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.expr import col
from caraway.lib.params import inputs, outputs
from caraway.testing import MockClient
from tests.unit.compute.query.garden import CATALOG


@meta(owner="a@b.co")
@connectors.source(connectors.Webhook(name="shop").endpoint("users"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Users:
    user: int = field(key=True)
    limit: int
    seen: datetime


@meta(owner="a@b.co")
@featureset
class Request:
    user: int
    amount: int


@meta(owner="a@b.co")
@featureset
class Service:
    user: int
    limit: Optional[int] = F(Users.limit)
    over: Optional[bool] = F(col("limit") > 40)
    twice: int = F(col("user") * 2)
    fee: int

    @extractor
    @inputs(Request.user, Request.amount)
    @outputs("fee")
    def charge(cls, ts, user, amount):
        return (user + amount).rename("fee")


@meta(owner="a@b.co")
@featureset
class Baskets:
    user: list[int]
    limits: list[Optional[int]] = F(Users.limit)


@pytest.fixture
def shop() -> QueryEngine:
    client = MockClient()
    client.commit("shop", datasets=[Users], featuresets=[Request, Service, Baskets])
    rows = {"user": [1, 2], "limit": [50, 20], "seen": [datetime(1970, 1, 2), datetime(1970, 1, 3)]}
    client.log("shop", "users", pd.DataFrame(rows))
    return client._current().queries


def body_of(**members: object) -> OnlineFeaturesBody:
    return structured({"entities": {}, **members}, OnlineFeaturesBody)


def test_a_join_key_is_the_feature_of_each_view_that_has_it() -> None:
    asked = resolve(CATALOG, ["State:species", "Notes:note"], ["pot"], full=False)
    assert asked == Asked(
        inputs={"pot": ("State.pot", "Notes.pot")},
        outputs=("State.species", "Notes.note"),
        shown=("species", "note"),
    )


def test_full_names_tell_views_apart() -> None:
    references = ["State:species", "ByText:species"]
    assert resolve(CATALOG, references, ["raw"], full=True).shown == ("State__species", "ByText__species")
    with pytest.raises(InvalidInputError, match="full_feature_names"):
        resolve(CATALOG, references, ["raw"], full=False)


def test_a_join_key_that_no_view_has_is_found_elsewhere() -> None:
    assert resolve(CATALOG, ["State:species"], ["raw"], full=False).inputs == {"raw": ("Tap.raw",)}
    assert resolve(CATALOG, ["State:species"], ["Tap.pot"], full=False).inputs == {"Tap.pot": ("Tap.pot",)}
    # Several features have this name; the one from which the view is computed counts.
    assert resolve(CATALOG, ["Faulty:small"], ["pot"], full=False).inputs == {"pot": ("Tap.pot",)}
    with pytest.raises(InvalidInputError, match="may be"):
        resolve(CATALOG, ["Faulty:small"], ["species"], full=False)
    with pytest.raises(InvalidInputError, match="'driver'"):
        resolve(CATALOG, ["State:species"], ["driver"], full=False)


def test_a_service_is_a_featureset() -> None:
    asked = resolve(CATALOG, references_of(body_of(feature_service="Notes")), ["pot"], full=False)
    assert asked.outputs == ("Notes.note",)
    with pytest.raises(UnknownEntityError, match="'Nothing'"):
        resolve(CATALOG, ["Nothing"], ["pot"], full=False)


def test_the_answer_has_a_status_for_each_value() -> None:
    asked = Asked(inputs={}, outputs=("Notes.note",), shown=("note",))
    times = {"Notes.note": ["2024-01-01T00:00:00Z", NO_TIME]}
    found = shown(asked, {"pot": [1, 2]}, {"Notes.note": ["a", None]}, times)
    assert found["metadata"] == {"feature_names": ["pot", "note"]}
    results: Any = found["results"]
    assert [result["values"] for result in results] == [[1, 2], ["a", None]]
    assert [result["statuses"] for result in results] == [["PRESENT", "PRESENT"], ["PRESENT", "NULL_VALUE"]]
    assert [result["event_timestamps"] for result in results] == [[NO_TIME, NO_TIME], ["2024-01-01T00:00:00Z", NO_TIME]]


def test_what_a_request_brings_is_an_entity_wherever_the_view_needs_it(shop: QueryEngine) -> None:
    """Check that a service may read a featureset that callers supply beside its own feature of the same name."""
    asked = resolve(shop.catalog, references_of(body_of(feature_service="Service")), ["user", "amount"], full=False)
    assert asked.inputs == {"user": ("Service.user", "Request.user"), "amount": ("Request.amount",)}
    plan = shop.plan([name for names in asked.inputs.values() for name in names], asked.outputs, event_times=True)
    batch = plan.evaluate({"Service.user": [1, 7], "Request.user": [1, 7], "Request.amount": [60, 70]})
    assert plan.answer(batch) == {
        "Service.limit": [50, None],
        "Service.over": [True, None],
        "Service.twice": [2, 14],
        "Service.fee": [61, 77],
    }
    assert event_times(time_columns(plan.plan), batch) == {
        "Service.limit": ["1970-01-02T00:00:00Z", NO_TIME],
        "Service.over": ["1970-01-02T00:00:00Z", NO_TIME],
        "Service.twice": [NO_TIME, NO_TIME],
        "Service.fee": [NO_TIME, NO_TIME],
    }


def test_the_event_time_of_looked_up_lists_is_that_of_the_newest_row(shop: QueryEngine) -> None:
    plan = shop.plan(["Baskets.user"], ["Baskets.limits"], event_times=True)
    batch = plan.evaluate({"Baskets.user": [[2, 1, 7], []]})
    assert plan.answer(batch) == {"Baskets.limits": [[20, 50, None], []]}
    assert event_times(time_columns(plan.plan), batch) == {"Baskets.limits": ["1970-01-03T00:00:00Z", NO_TIME]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"features": []},
        {"features": "a:b"},
        {"features": ["a"]},
        {"features": ["a:b:c"]},
        {"features": [1]},
        {"feature_service": 1},
        {"feature_service": "a", "features": ["a:b"]},
    ],
)
def test_references_that_are_none(body: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        references_of(body_of(**body))


@pytest.mark.parametrize("entities", [None, [], {"a": 1}, {"a": [1], "b": []}])
def test_entities_that_are_none(entities: object) -> None:
    with pytest.raises(InvalidInputError):
        entities_of(body_of(entities=entities))
