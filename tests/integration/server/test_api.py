"""Tests of the REST surface of a real server, with Kafka, Postgres and RocksDB."""

# The functions that no server can run import a module that nobody has.
# mypy: disable-error-code="import-not-found"

import sys
import time
from types import ModuleType
from typing import Any

import httpx2
import pytest

from caraway.dtypes.types import INT
from caraway.graph.specs import FeaturesetSpec, FeatureSpec, Graph, Metadata, PythonExtractor
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.integration.server.server_process import ServerProcess, eventually
from tests.tls import TLS
from tests.unit.compute.query import garden
from tests.unit.compute.query.steps import by_value

HOUR = 3600


def pot(number: int, species: str, **more: object) -> dict[str, object]:
    return {"pot": number, "species": species, "size": None, "bought": int(time.time()) - HOUR, **more}


@pytest.mark.spec("connectors:11:1")
def test_what_is_logged_is_served(server: ServerProcess) -> None:
    assert server.log("pots", [pot(1, "oak", size=12.5), pot(2, "elm")]).json() == {
        "accepted": 2,
        "rejected": 0,
        "errors": [],
        "warnings": [],
    }
    server.log("rules", {"species": ["oak"], "text": ["daily"], "water": [3], "since": ["2020-01-01"]})
    expected = {
        "State.species": ["oak", "elm", "fern"],
        "State.size": [12.5, None, None],
        "State.big": [True, False, False],
        "State.mean": [-1.0, -1.0, -1.0],
        "State.advice": ["daily", "none", "none"],
    }
    eventually(lambda: server.query(list(expected), {"Tap.pot": [1, 2, 9]}).json() == expected, server.said)


def test_a_query_may_choose_the_time_of_each_row(server: ServerProcess) -> None:
    server.log("pots", [pot(50, "oak", bought=1000), pot(50, "elm", bought=2000)])
    outputs = ["State.species"]

    def species() -> object:
        rows = [{"Tap.pot": 50}] * 4
        return server.query(outputs, rows, timestamps=[999, 1000, 1999.5, "1970-01-01T00:33:20Z"]).json()

    eventually(lambda: species() == {"State.species": ["fern", "oak", "oak", "elm"]}, lambda: str(species()))


def test_lookup_gives_rows(server: ServerProcess) -> None:
    server.log("pots", [pot(60, "oak", bought=1000)])
    body = {"keys": [{"pot": 60}, {"pot": 61}], "fields": ["species", "bought"]}

    def rows() -> object:
        return server.http.post("/dataset/Pots/lookup", json=body).json()

    found = {"species": ["oak", None], "bought": ["1970-01-01T00:16:40Z", None]}
    eventually(lambda: rows() == {"found": [True, False], "data": found}, lambda: str(rows()))


@pytest.mark.spec("featuresets:6:16")
def test_health_status_and_metrics(server: ServerProcess) -> None:
    health = server.health().json()
    # The only warning is that of the tests' Kafka, which is a single broker.
    assert (health["status"], "kafka.replication_factor" in health["warning"]) == ("ok", True)
    assert ";" not in health["warning"].replace("; see kafka.replication_factor", "")
    status = server.http.get("/status").json()
    assert status["datasets"] == [spec.name for spec in garden.graph().datasets]
    assert status["problems"] == {}
    assert [job["dataset"] for job in status["jobs"]] == ["Moisture"]
    assert status["index"]["alive"] is True
    assert "Moisture" in {index["dataset"] for index in status["index"]["indexes"]}
    server.log("pots", [pot(80, "oak")])
    server.query(["State.pot"], [{"Tap.pot": 1}])
    page = server.http.get("/metrics").text
    for name in (
        'caraway_source_dataset_counter_total{dataset_name="Pots"',
        'caraway_request_counter_total{code="200",target="extract_features"}',
        'caraway_request_latency_seconds_bucket{le="0.001",target="log"}',
        'caraway_extract_features_counter_total{feature="pot",featureset="State"',
        'caraway_extract_features_latency_seconds_count{target="extract_features",workflow="default"}',
        'caraway_source_dataset_metrics{dataset_name="Pots",metric="backlog",source_name="garden"}',
    ):
        assert name in page
    root = httpx2.get(f"{server.settings.server.url}/", verify=TLS)
    assert "real-time feature platform" in root.text


def doubled(cls: Any, ts: Any, x: Any) -> Any:
    from farm_tools import double  # noqa: PLC0415 (no server has this module)

    return double(x)


def test_a_commit_of_functions_that_import_what_the_server_lacks_is_refused(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "farm_tools", ModuleType("farm_tools"))
    double = PythonExtractor(
        name="double",
        inputs=("Far.x",),
        outputs=("Far.doubled",),
        datasets=(),
        version=0,
        source_code="",
        pickled=by_value(doubled),
    )
    features = tuple(FeatureSpec(name=name, dtype=INT) for name in ("x", "doubled"))
    far = FeaturesetSpec(name="Far", features=features, extractors=(double,), metadata=Metadata(owner="a@b.co"))
    content = encode_commit(CommitRequest(message="", graph=Graph(featuresets=(far,)), incremental=True))
    answer = server.http.post("/commit", content=content)
    assert answer.status_code == 400, answer.text
    said, remedy = answer.json()["err_msg"].splitlines()
    assert said == "function Far.double can't run on the server: No module named 'farm_tools'"
    assert "@includes" in remedy


LOG = '{"webhook": "garden", "endpoint": "pots", "data": %s}'
QUERY = '{"inputs": ["Tap.pot"], "outputs": ["State.size"], "data": %s}'
MALFORMED: list[tuple[str, str, int, str]] = [
    ("/query", "", 400, "the body is empty"),
    ("/query", "{", 400, "line 1, column 2"),
    ("/query", '{"a": 1,}', 400, "column 8"),
    ("/query", "NaN", 400, "isn't JSON"),
    ("/query", "\xff", 400, "isn't JSON"),
    ("/query", '"\\ud800"', 400, "isn't JSON"),
    ("/query", "[" * 100_000, 400, "more than 64 levels deep"),
    ("/query", "{}", 400, "inputs is missing"),
    ("/query", '{"inputs": "Tap.pot"}', 400, "inputs is a string"),
    ("/query", '{"inputs": ["Tap.pot"], "outputs": {}}', 400, "outputs is an object"),
    ("/query", '{"inputs": ["Tap.pot"], "outputs": ["Nothing"], "data": []}', 404, "no featureset 'Nothing'"),
    ("/query", '{"inputs": [], "outputs": ["State.size"], "data": []}', 400, "Tap.pot"),
    ("/query", QUERY % "3", 400, "data is a number"),
    ("/query", QUERY % '"[{]"', 400, "data is text that isn't JSON"),
    ("/query", QUERY % "[1]", 400, "row 0 is int"),
    ("/query", QUERY % "[{}]", 400, "no value for the input Tap.pot"),
    ("/query", QUERY % '[{"Tap.pot": {}}]', 400, "expected int"),
    ("/query", QUERY % '[{"Tap.pot": 1e400}]', 400, ""),
    ("/query", QUERY % '[{"Tap.pot": 99999999999999999999}]', 400, "doesn't fit 64 bits"),
    ("/query", QUERY % '{"Tap.pot": 1}', 400, "a list is expected"),
    ("/query", QUERY % '[{"Tap.pot": 1}], "timestamps": 3', 400, "timestamps is a number"),
    ("/query", QUERY % '[{"Tap.pot": 1}], "timestamps": ["x"]', 400, "timestamps, row 0"),
    ("/query", QUERY % '[{"Tap.pot": 1}], "timestamps": [true]', 400, "timestamps, row 0"),
    ("/query", QUERY % '[], "log": true, "sampling_rate": "half"', 400, "from 0 to 1"),
    ("/query", QUERY % '[], "log": 1', 400, "log is a number"),
    ("/query", QUERY % '[], "workflow": 1', 400, "workflow is a number"),
    ("/query", QUERY % f'[], "workflow": "{"w" * 101}"', 400, "at most 100"),
    ("/dataset/Rules/lookup", '{"keys": [{"species": "%s"}]}' % ("x" * 70_000), 400, "70,006 bytes"),
    ("/init", "{}", 409, "main"),
    ("/query", '{"inputs": ["Tap.pot"], "outputs": ["Faulty.broken"], "data": [{"Tap.pot": 1}]}', 422, "explode"),
    ("/query/explain", '{"inputs": [], "outputs": ["Nothing"]}', 404, "no featureset 'Nothing'"),
    ("/query/explain", QUERY % '[{"Tap.pot": 1}], "runs": 0', 400, "runs is 0; it has to be a number from 1"),
    (
        "/query/explain",
        QUERY % '[{"Tap.pot": 1}], "runs": true',
        400,
        "runs is a boolean; it has to be a number from 1",
    ),
    ("/query/explain", QUERY % "3", 400, "data is a number"),
    ("/log", '{"webhook": "no", "endpoint": "pots", "data": []}', 404, "webhooks: garden"),
    ("/log", LOG % "null", 400, "data is null"),
    ("/log", LOG % '[null, [], 1, ""]', 422, "none of the 4 rows was accepted"),
    ("/log", LOG % '[{"pot": 1, "species": "x", "size": 1, "bought": 1e300}]', 422, "bought"),
    ("/log", LOG % '[{"pot": 1, "species": "x", "size": 1, "bought": "9999999999999999999999"}]', 422, "bought"),
    ("/log", LOG % '[{"pot": 1, "species": "x", "size": 1, "bought": "+275760-09-13"}]', 422, "bought"),
    ("/dataset/Pots/lookup", "{}", 400, "keys is missing; it has to be a list of objects"),
    ("/dataset/Pots/lookup", '{"keys": [1]}', 400, "keys has to be a list of objects"),
    ("/dataset/Pots/lookup", '{"keys": [{}]}', 400, "row 0 has no value"),
    ("/dataset/Pots/lookup", '{"keys": [{"pot": []}]}', 400, "expected int"),
    ("/dataset/Pots/lookup", '{"keys": [], "fields": 1}', 400, "fields is a number"),
    ("/dataset/Pots/lookup", '{"keys": [], "fields": ["x"]}', 400, "no field 'x'"),
    ("/dataset/Pots/lookup", '{"keys": [{"pot": 1}], "timestamps": "now"}', 400, "timestamps is a string"),
    ("/dataset/Nothing/lookup", '{"keys": []}', 404, "no dataset 'Nothing'"),
    ("/dataset/%F0%9F%92%A5/lookup", '{"keys": []}', 404, "no dataset"),
    ("/dataset//lookup", "{}", 404, "there is nothing under"),
    ("/commit", "", 400, "the body is empty"),
    ("/commit", "not protobuf", 400, "no commit of Caraway's client"),
    ("/commit?preview=maybe", "x", 400, ""),
    ("/nothing", "", 404, "the nearest of"),
]


@pytest.mark.parametrize(("path", "body", "status", "said"), MALFORMED)
def test_malformed_requests_are_refused_with_a_code_and_a_sentence(
    server: ServerProcess, path: str, body: str, status: int, said: str
) -> None:
    answer = server.http.post(path, content=body.encode("latin-1"))
    assert answer.status_code == status, answer.text
    refusal = answer.json()
    assert refusal["code"]
    assert said in refusal["err_msg"]
