"""Events have the form of OpenLineage's classes, and say what the definitions say."""

# mypy: disable-error-code="arg-type, list-item"

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from caraway.client import arguments
from caraway.connectors import Kafka, Postgres, sink, source
from caraway.datasets import dataset
from caraway.graph.specs import Graph
from caraway.lib import meta
from caraway.offline.monitoring.openlineage.events import Events
from caraway.offline.monitoring.openlineage.runs import Run, RunChange, Turn
from tests.parity.explaining import featured
from tests.parity.graphs import case_of
from tests.services.lineage_receiver import check
from tests.unit.compute.query import garden

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVENTS = Events("plants", clock=lambda: NOW)
RUN = Run(
    run_id="6e4fe2a6-4b0a-4fb0-8a2a-3c0f43a6a1f5",
    branch="main",
    dataset="Moisture",
    pipeline="aggregate",
    job_id="Moisture.1",
    attempts=1,
)


def definitions(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return the events of a graph by the names of their jobs; no two have the same."""
    events = [orjson.loads(event) for event in EVENTS.definitions("main", graph)]
    for event in events:
        check(event)
    found = {event["job"]["name"]: event for event in events}
    assert len(found) == len(events)
    return found


def test_a_pipeline_has_its_inputs_and_outputs_with_columns() -> None:
    event = definitions(garden.graph())["main.pipelines.Moisture.aggregate"]
    assert event["eventTime"] == "2026-05-01T12:00:00Z"
    assert event["job"]["namespace"] == "plants"
    assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert event["job"]["facets"]["ownership"]["owners"] == [{"name": "a@b.co"}]
    assert [one["name"] for one in event["inputs"]] == ["main.datasets.Readings"]
    (output,) = event["outputs"]
    assert output["name"] == "main.datasets.Moisture"
    fields = {field["name"]: field["type"] for field in output["facets"]["schema"]["fields"]}
    assert fields == {"pot": "int", "mean": "float", "count": "int", "at": "datetime"}
    columns = output["facets"]["columnLineage"]["fields"]
    readings = {"namespace": "plants", "name": "main.datasets.Readings"}
    assert columns["mean"]["inputFields"] == [{**readings, "field": "moisture"}]
    assert columns["pot"]["inputFields"] == [{**readings, "field": "pot"}]
    # A count without a column is computed from none.
    assert "count" not in columns


def test_a_source_and_a_featureset_are_jobs() -> None:
    found = definitions(garden.graph())
    source = found["main.sources.Pots.[Webhook: garden](endpoint=pots)"]
    assert [(one["namespace"], one["name"]) for one in source["inputs"]] == [("webhook://garden", "endpoint=pots")]
    state = found["main.featuresets.State"]
    assert state["job"]["facets"]["jobType"] | {"_producer": "", "_schemaURL": ""} == {
        "_producer": "",
        "_schemaURL": "",
        "processingType": "SERVICE",
        "integration": "CARAWAY",
        "jobType": "FEATURESET",
    }
    (output,) = state["outputs"]
    assert output["name"] == "main.features.State"
    columns = output["facets"]["columnLineage"]["fields"]
    assert columns["species"]["inputFields"] == [
        {"namespace": "plants", "name": "main.datasets.Pots", "field": "species"}
    ]
    assert "main.datasets.Pots" in {one["name"] for one in state["inputs"]}
    assert "main.features.State" not in {one["name"] for one in state["inputs"]}


@pytest.mark.parametrize("seed", range(1, 25))
def test_all_operators_make_events_of_the_right_form(seed: int) -> None:
    case = case_of(seed)
    graph = featured(case.datasets)
    found = definitions(graph)
    wanted = sum(len(spec.sources) + len(spec.pipelines) for spec in graph.datasets) + len(graph.featuresets)
    assert len(found) == wanted


def test_no_setting_of_a_system_is_sent() -> None:
    given: dict[str, Any] = {"host": "hidden.example.com", "db_name": "shop", "username": "ada", "password": "hunter2"}
    brokers = Kafka(
        name="bus",
        bootstrap_servers="hidden.example.com:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="ada",
        sasl_plain_password="hunter2",
    )

    @meta(owner="ada@example.com")
    @source(Postgres(name="pg", **given).table("orders", cursor="at"), disorder="1h", cdc="append", every="1h")
    @sink(brokers.topic("orders"), cdc="debezium")
    @dataset
    class Orders:
        amount: float
        at: datetime

    found = definitions(arguments.gather([Orders], ()))
    assert len(found) == 2
    text = repr(found)
    assert "table=orders" in text
    assert "topic=orders" in text
    assert "hidden" not in text
    assert "hunter2" not in text
    assert "'ada'" not in text


@pytest.mark.parametrize("turn", list(Turn))
def test_a_run_names_its_pipeline(turn: Turn) -> None:
    event = orjson.loads(EVENTS.run(RunChange(turn, RUN), garden.graph()))
    check(event)
    assert event["eventType"] == turn
    assert event["run"]["runId"] == RUN.run_id
    assert event["job"]["name"] == "main.pipelines.Moisture.aggregate"
    assert [one["name"] for one in event["inputs"]] == ["main.datasets.Readings"]
    assert [one["name"] for one in event["outputs"]] == ["main.datasets.Moisture"]
    assert ("errorMessage" in event["run"].get("facets", {})) == (turn is Turn.FAIL)


def test_a_run_of_a_pipeline_that_is_gone_ends() -> None:
    event = orjson.loads(EVENTS.run(RunChange(Turn.COMPLETE, RUN), None))
    check(event)
    assert event["job"]["name"] == "main.pipelines.Moisture.aggregate"
    assert not event.get("outputs")
