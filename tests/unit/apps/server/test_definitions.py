"""Tests of the server's descriptions of datasets, pipelines, featuresets, features and sources by name."""

import pytest

from caraway.apps.server.access.limits import Tags, readable
from caraway.apps.server.handlers.definitions import described, listed
from caraway.apps.server.served_graph import ServedGraph
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.ingest.endpoints import Endpoints
from caraway.errors import UnknownEntityError
from caraway.graph.plan.planner import plan_graph
from caraway.state.permissions import Caller, Grant, Mode
from tests.unit.apps.server.reports import index_status
from tests.unit.compute.query import garden

GRAPH = garden.graph()
PLAN = plan_graph(GRAPH)
SERVED = ServedGraph("1", GRAPH, PLAN, Endpoints(PLAN), None)  # type: ignore[arg-type] # no query is made


def position(dataset: str, lag: int | None) -> IndexStatus:
    (index,) = [found for found in PLAN.indexes if found.dataset == dataset]
    return index_status(index, lag=lag)


def test_the_list_of_datasets() -> None:
    found = {each["name"]: each for each in listed(SERVED, [position("Pots", 3), position("Moisture", None)], GRAPH)}
    assert list(found)[:4] == ["Pots", "Rules", "Readings", "Moisture"]
    assert found["Pots"] == {
        "name": "Pots",
        "kind": "source",
        "version": 1,
        "keys": ["pot"],
        "timestamp": "bought",
        "columns": 4,
        "from": ["[Webhook: garden](endpoint=pots)"],
        "indexed": True,
        "lag": 3,
    }
    assert found["Moisture"]["kind"] == "derived"
    assert (found["Moisture"]["indexed"], found["Moisture"]["lag"]) == (True, None)
    assert (found["Readings"]["indexed"], found["Readings"]["lag"]) == (False, None)


def test_a_dataset_says_who_uses_it() -> None:
    (readings,) = described(SERVED, "Readings", [], GRAPH)
    assert readings["used_by"] == ["Moisture.aggregate"]
    (pots,) = described(SERVED, "Pots", [], GRAPH)
    assert {"State.species", "State.size", "ByText.species"} <= set(pots["used_by"])  # type: ignore[call-overload]
    fields = {field["name"]: field for field in pots["fields"]}  # type: ignore[attr-defined]
    assert fields["size"] == {"name": "size", "type": "Optional[float]", "role": "", "description": ""}
    assert [fields[name]["role"] for name in ("pot", "bought")] == ["key", "timestamp"]
    assert pots["owner"] == "a@b.co"


def test_a_pipeline_names_its_job() -> None:
    (pipeline,) = described(SERVED, "Moisture.aggregate", [], GRAPH)
    assert (pipeline["kind"], pipeline["from"], pipeline["writes"]) == ("pipeline", ["Readings"], "Moisture")
    assert "groupby" in str(pipeline["source_code"])
    assert [job["id"] for job in pipeline["jobs"]] == [  # type: ignore[attr-defined]
        job.job_id for job in PLAN.jobs if job.dataset == "Moisture"
    ]


@pytest.mark.parametrize(
    ("name", "origin", "needs"),
    [
        ("State.species", "lookup of Pots.species", ["State.pot"]),
        ("State.pot", "feature Tap.pot", ["Tap.pot"]),
        ("State.score", "expression over State.count", ["State.count"]),
        ("State.advice", "Python function advise", ["State.species", "State.big"]),
        ("Tap.pot", "the query's input", []),
    ],
)
def test_a_feature_says_how_it_gets_its_value(name: str, origin: str, needs: list[str]) -> None:
    (feature,) = described(SERVED, name, [], GRAPH)
    assert (feature["kind"], feature["from"], feature["needs"]) == ("feature", origin, needs)


def test_a_featureset_and_a_source() -> None:
    (tap,) = described(SERVED, "Tap", [], GRAPH)
    assert [feature["name"] for feature in tap["features"]] == ["Tap.pot", "Tap.litres", "Tap.raw"]  # type: ignore[attr-defined]
    (source,) = described(SERVED, "garden", [], GRAPH)
    assert {"connector": "[Webhook: garden](endpoint=pots)", "dataset": "Pots"} in source["feeds"]  # type: ignore[operator]


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    with pytest.raises(UnknownEntityError, match=r"no definition 'State\.specie'; did you mean State\.species"):
        described(SERVED, "State.specie", [], GRAPH)
    with pytest.raises(UnknownEntityError, match="caraway datasets"):
        described(SERVED, "zzzzzz", [], GRAPH)


def test_what_may_not_be_seen_is_neither_listed_nor_described() -> None:
    tags = Tags.of(garden.tagged(Pots=["pii"], Readings__moisture=["pii"]))
    caller = Caller(account="ada", token_id="t", grants=(Grant(modes=frozenset(Mode), without=frozenset({"pii"})),))
    seen = readable(GRAPH, tags, caller, "main")
    names = [each["name"] for each in listed(SERVED, [], seen)]
    assert names == [spec.name for spec in GRAPH.datasets if spec.name != "Pots"]
    for name in ("Pots", "State.species", "State.advice"):
        with pytest.raises(UnknownEntityError) as caught:
            described(SERVED, name, [], seen)
        assert f"did you mean {name}" not in str(caught.value)
    (readings,) = described(SERVED, "Readings", [], seen)
    assert [field["name"] for field in readings["fields"]] == ["pot", "at"]  # type: ignore[attr-defined]
