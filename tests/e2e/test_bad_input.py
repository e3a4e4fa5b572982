"""Bad rows and bad commits are refused, and do no harm to a running stack.

The texts of refusals are tested by `tests/integration/server/test_api.py`, `tests/unit/client` and `tests/unit/graph`.
"""

from dataclasses import replace

import httpx2
import pandas as pd
import pytest

from caraway.client import Client
from caraway.client.client import build_graph
from caraway.errors import CommitError, InvalidInputError, RemoteError
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.e2e.conftest import World
from tests.tls import TLS

GOOD = {
    "airport": "~good",
    "temperature": 40.0,
    "wind": None,
    "precipitation": 0.0,
    "visibility": 10.0,
    "measured": "2013-01-01T00:00:00Z",
}


def test_a_bad_row_is_named_and_the_good_ones_of_its_batch_are_kept(world: World, client: Client) -> None:
    names = ["~c1", "~bad", "~c2"]
    rows = [GOOD | {"airport": "~c1"}, GOOD | {"airport": "~bad", "visibility": None}, GOOD | {"airport": "~c2"}]
    with pytest.raises(InvalidInputError, match=r"took 2 of 3 rows(.|\n)*row 1, visibility"):
        client.log("flights", "weather", pd.DataFrame(rows))
    keys = pd.DataFrame({"airport": names})
    world.wait_for(lambda: client.lookup("Weather", keys)[1].tolist() == [True, False, True])


def test_a_bad_commit_names_what_is_wrong(world: World, client: Client) -> None:
    flights = world.flights
    without = [dataset for dataset in flights.datasets if dataset._name != "Departures"]
    with pytest.raises((CommitError, RemoteError), match="Departures"):
        client.commit("bad", without, flights.featuresets)
    graph = build_graph(flights.datasets, flights.featuresets)
    datasets = {dataset.name: dataset for dataset in graph.datasets}
    last, origin = datasets["LastDepartures"], datasets["OriginDelays"]
    dtype = next(f.dtype for f in origin.fields if f.name == "mean_1h")
    fields = tuple(replace(f, dtype=dtype) if f.name == "delay" else f for f in last.fields)
    wrong = datasets | {last.name: replace(last, version=2, fields=fields)}
    request = CommitRequest(message="bad", graph=replace(graph, datasets=tuple(wrong.values())))
    headers = {"Content-Type": "application/octet-stream", **world.headers}
    answer = httpx2.post(
        f"{world.url}/api/v1/commit", content=encode_commit(request), headers=headers, timeout=60, verify=TLS
    )
    assert answer.status_code == 400
    assert all(word in answer.json()["err_msg"] for word in ("LastDepartures", "delay", "int", "float"))


def test_after_all_this_everything_runs_and_serves(world: World) -> None:
    world.wait_until_running()
    world.ensure(0)
    assert world.agree(0, count=100).disagreements == ()
