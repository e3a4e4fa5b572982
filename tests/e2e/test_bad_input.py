"""Bad events and bad commits: each refused with its place, and nothing else harmed."""

import http.client
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
import pandas as pd
import pytest

from caraway.client import Client
from caraway.client.client import build_graph
from caraway.errors import CommitError, InvalidInputError, RemoteError
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.e2e.conftest import World

GOOD = {
    "airport": "~good",
    "temperature": 40.0,
    "wind": None,
    "precipitation": 0.0,
    "visibility": 10.0,
    "measured": "2013-01-01T00:00:00Z",
}


def _post(world: World, path: str, body: bytes, kind: str = "application/json") -> tuple[int, dict[str, Any]]:
    address = urlsplit(world.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    connection.request("POST", f"/api/v1{path}", body, {"Content-Type": kind, **world.headers})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, orjson.loads(content)


def _log(world: World, data: object, endpoint: str = "weather") -> tuple[int, dict[str, Any]]:
    return _post(world, "/log", orjson.dumps({"webhook": "flights", "endpoint": endpoint, "data": data}))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"visibility": None}, "visibility"),
        ({"visibility": "far"}, "visibility"),
        ({"airport": None}, "airport"),
        ({"measured": "yesterday"}, "measured"),
        ({"temperature": [1, 2]}, "temperature"),
    ],
)
def test_a_bad_row_is_named_and_the_good_ones_of_its_batch_are_kept(
    world: World, client: Client, change: dict[str, Any], field: str
) -> None:
    names = [f"~{field}-{change[field]!s}-{number}" for number in range(2)]
    rows = [GOOD | {"airport": names[0]}, GOOD | {"airport": "~bad"} | change, GOOD | {"airport": names[1]}]
    status, answer = _log(world, rows)
    assert status == 200
    assert (answer["accepted"], answer["rejected"]) == (2, 1)
    assert [(error["row"], error["field"], error["dataset"]) for error in answer["errors"]] == [(1, field, "Weather")]
    keys = pd.DataFrame({"airport": [*names, "~bad"]})
    world.wait_for(lambda: client.lookup("Weather", keys)[1].tolist() == [True, True, False])


def test_a_missing_field_is_named(world: World) -> None:
    rows = [{name: value for name, value in GOOD.items() if name != "precipitation"}]
    status, answer = _log(world, rows)
    assert status == 422
    assert answer["errors"][0]["field"] == "precipitation"
    assert "row 0" in answer["err_msg"]


def test_an_unknown_field_is_reported_and_does_no_harm(world: World) -> None:
    status, answer = _log(world, [GOOD | {"humour": "dry"}])
    assert status == 200
    assert "humour" in str(answer["warnings"])
    assert answer["accepted"] == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"webhook": "flights"}', b"\xff\xfe", b'{"a": NaN}'])
def test_what_is_no_request_is_refused(world: World, body: bytes) -> None:
    for path in ("/log", "/query"):
        status, answer = _post(world, path, body)
        assert status == 400
        assert answer["err_msg"]


def test_an_unknown_endpoint_is_named(world: World, client: Client) -> None:
    status, answer = _log(world, [GOOD], endpoint="wether")
    assert status == 404
    assert "wether" in answer["err_msg"]
    with pytest.raises(RemoteError, match="wether"):
        client.log("flights", "wether", pd.DataFrame([GOOD]))


def test_the_client_tells_which_rows_were_rejected(world: World, client: Client) -> None:
    rows = [GOOD | {"airport": "~c1"}, GOOD | {"visibility": None}, GOOD | {"airport": "~c2"}]
    with pytest.raises(InvalidInputError, match=r"took 2 of 3 rows(.|\n)*row 1, visibility"):
        client.log("flights", "weather", pd.DataFrame(rows))
    keys = pd.DataFrame({"airport": ["~c1", "~c2"]})
    world.wait_for(lambda: client.lookup("Weather", keys)[1].tolist() == [True, True])


def test_unknown_entities_are_named(client: Client) -> None:
    with pytest.raises(KeyError, match="404: there is no dataset 'Wether'"):
        client.lookup("Wether", pd.DataFrame({"airport": ["JFK"]}))
    with pytest.raises(RemoteError, match=r"Flight\.colour"):
        client.query(["Flight.flight_id"], ["Flight.colour"], pd.DataFrame({"Flight.flight_id": ["x"]}))
    with pytest.raises(RemoteError, match="humidity"):
        client.lookup("Weather", pd.DataFrame({"airport": ["JFK"]}), ["humidity"])


def test_bytes_that_are_no_commit_are_refused(world: World) -> None:
    status, answer = _post(world, "/commit", b"\x00not protobuf\xff", "application/octet-stream")
    assert status == 400
    assert "commit" in answer["err_msg"]


def _request(world: World) -> CommitRequest:
    return CommitRequest(message="bad", graph=build_graph(world.flights.datasets, world.flights.featuresets))


def _commit(world: World, request: CommitRequest) -> tuple[int, dict[str, Any]]:
    return _post(world, "/commit", encode_commit(request), "application/octet-stream")


def test_a_changed_definition_needs_a_new_version(world: World) -> None:
    request = _request(world)
    weather = next(dataset for dataset in request.graph.datasets if dataset.name == "Weather")
    changed = replace(weather, fields=tuple(field for field in weather.fields if field.name != "temperature"))
    datasets = tuple(changed if dataset is weather else dataset for dataset in request.graph.datasets)
    status, answer = _commit(world, replace(request, graph=replace(request.graph, datasets=datasets)))
    assert status == 400
    for word in ("'Weather'", "'temperature'", "Optional[float]", "@dataset(version=2)"):
        assert word in answer["err_msg"]


def test_a_commit_with_a_type_error_names_dataset_and_column(world: World) -> None:
    request = _request(world)
    datasets = {dataset.name: dataset for dataset in request.graph.datasets}
    last, origin = datasets["LastDepartures"], datasets["OriginDelays"]
    dtype = next(f.dtype for f in origin.fields if f.name == "mean_1h")
    fields = tuple(replace(f, dtype=dtype) if f.name == "delay" else f for f in last.fields)
    wrong = replace(last, version=2, fields=fields)
    graph = replace(request.graph, datasets=tuple(wrong if d.name == wrong.name else d for d in datasets.values()))
    status, answer = _commit(world, replace(request, graph=graph))
    assert status == 400
    for word in ("LastDepartures", "delay", "int", "float"):
        assert word in answer["err_msg"]


def test_a_commit_that_lacks_an_input_names_it(world: World, client: Client) -> None:
    flights = world.flights
    without = [dataset for dataset in flights.datasets if dataset._name != "Departures"]
    with pytest.raises((CommitError, RemoteError), match="Departures"):
        client.commit("bad", without, flights.featuresets)


def test_after_all_this_everything_runs_and_serves(world: World) -> None:
    world.wait_until_running()
    world.ensure(0)
    assert world.agree(0, count=100).disagreements == ()
