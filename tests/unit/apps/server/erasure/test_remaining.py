"""Tests of the places that keep clear text of erased rows, including those upstream and downstream of the dataset."""

# mypy: disable-error-code="no-untyped-def, attr-defined"
# ruff: noqa: ANN001, ANN201

from datetime import datetime

from caraway import Count, connectors, dataset, field, meta, pipeline
from caraway.apps.server.erasure.remaining import remaining
from caraway.client import Client
from caraway.dtypes import Continuous
from caraway.lib.params import inputs

hook = connectors.Webhook(name="hotel")


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("visits"), disorder="1h", cdc="append")
@dataset
class Visits:
    guest: str
    at: datetime


@meta(owner="a@b.co")
@dataset(index=True)
class Guests:
    guest: str = field(key=True, erase_key=True)
    visits: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Visits)
    def count(cls, visits):
        return visits.groupby("guest").aggregate(visits=Count(window=Continuous("forever")))


@meta(owner="a@b.co")
@connectors.source(hook.endpoint("rooms"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Rooms:
    room: int = field(key=True, erase_key=True)
    guest: str
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@dataset(index=True)
class Large:
    room: int = field(key=True)
    guest: str
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Rooms)
    def large(cls, rooms):
        return rooms.filter(lambda frame: frame["room"] > 100)


GRAPH = Client.build_commit("hotel", [Visits, Guests, Rooms, Large], []).graph


def places(name: str) -> dict[str, tuple[str, str]]:
    return {found.where: (found.what, found.until) for found in remaining(name, GRAPH, [f"caraway.{name}"])}


def test_events_without_keys_upstream_are_named() -> None:
    found = places("Guests")
    assert "raise its version" in found["topic caraway.Guests"][1]
    what, until = found["dataset Visits"]
    assert "computed" in what
    assert until == "its version is raised and its topic removed: it has no erase key"
    assert "dataset Large" not in found


def test_what_is_computed_from_it_is_named() -> None:
    assert places("Rooms")["dataset Large"][0] == "rows computed from Rooms, their topic, and its job's state"
    assert places("Large")["dataset Rooms"][1] == "the keys are erased there, too, by room"


def test_the_places_of_every_dataset() -> None:
    assert list(places("Rooms"))[2:] == [
        "snapshots of the index",
        "topic caraway.dead-letters",
        "topic caraway.offline.monitoring-features",
        "archive of served features",
        "samples of the skew watch",
        "profiles of the drift watch",
        "files of the quality watch",
        "archive",
        "results of offline queries",
        "explanations of values (why.json)",
        "positions of sources, in Postgres",
        "logs of the server, the engine and the functions",
        "backups, and the systems that sent the rows or that sinks write",
    ]
