"""Tests of the REST surface of a real server, with Kafka, Postgres and RocksDB."""

# The functions that no server can run import a module that nobody has.
# mypy: disable-error-code="import-not-found"

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from caraway.cli import app
from caraway.dtypes.types import INT
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Input, Transform
from caraway.graph.sources import Computed
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, FeatureSpec, Graph, PipelineSpec, PythonExtractor
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.topics.dead_letters import DEAD_LETTERS
from tests.integration.server.server_process import ServerProcess, eventually, records
from tests.unit.query import garden
from tests.unit.query.steps import by_value

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


def test_a_query_explains_itself(server: ServerProcess) -> None:
    command = ["explain", "query", "State.advice", "--given", '{"Tap.pot": [1, 2]}', "--runs", "3", "--json"]
    result = CliRunner().invoke(app, [*command, "--url", str(server.settings.server.url)])
    assert result.exit_code == 0, result.output
    explained = json.loads(result.output)
    assert [step["kind"] for step in explained["steps"]] == ["alias", "index read", "expressions", "extractor"]
    assert (explained["rows"], explained["runs"], len(explained["commit"]) > 0) == (2, 3, True)
    assert all(step["took"]["least_ms"] > 0 for step in explained["steps"])


def test_lookup_gives_rows(server: ServerProcess) -> None:
    server.log("pots", [pot(60, "oak", bought=1000)])
    body = {"keys": [{"pot": 60}, {"pot": 61}], "fields": ["species", "bought"]}

    def rows() -> object:
        return server.http.post("/dataset/Pots/lookup", json=body).json()

    found = {"species": ["oak", None], "bought": ["1970-01-01T00:16:40Z", None]}
    eventually(lambda: rows() == {"found": [True, False], "data": found}, lambda: str(rows()))


def test_bad_rows_become_dead_letters(server: ServerProcess, kafka: str) -> None:
    answer = server.log("pots", [pot(70, "oak"), pot(71, "oak") | {"pot": "seventy-one"}, {"pot": 72, "colour": 1}])
    body = answer.json()
    assert (answer.status_code, body["accepted"], body["rejected"]) == (200, 1, 2)
    assert [(error["row"], error["field"]) for error in body["errors"]] == [(1, "pot"), (2, "species"), (2, "bought")]
    assert body["warnings"] == ["fields that Pots doesn't have were ignored: colour"]
    letters = [orjson.loads(value) for value in records(kafka, DEAD_LETTERS) if value]
    assert [letter["row"]["pot"] for letter in letters if letter["dataset"] == "Pots"][-2:] == ["seventy-one", 72]
    refused = server.log("pots", [{}])
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")


@pytest.mark.spec("featuresets:6:16")
def test_health_status_and_metrics(server: ServerProcess) -> None:
    assert server.health().json() == {"status": "ok"}
    status = server.http.get("/status").json()
    assert status["datasets"] == [spec.name for spec in garden.graph().datasets]
    assert status["problems"] == {}
    # Its index computes the only pipeline, without a job.
    assert status["jobs"] == []
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
    root = httpx.get(f"{server.settings.server.url}/")
    assert "real-time feature platform" in root.text


def test_a_commit_is_served_at_once_and_by_other_servers_soon(kafka: str, postgres: str, tmp_path: Path) -> None:
    first, second = (ServerProcess(tmp_path / name, kafka=kafka, postgres=postgres) for name in ("first", "second"))
    first.start()
    second.start()
    try:
        assert any("Pots" in line for line in first.commit(garden.graph()))
        assert first.query(["State.pot"], [{"Tap.pot": 1}]).json() == {"State.pot": [1]}
        eventually(lambda: second.query(["State.pot"], [{"Tap.pot": 1}]).status_code == 200, seconds=5)
        assert second.log("pots", [pot(5, "yew")]).status_code == 200
        eventually(lambda: first.query(["State.species"], [{"Tap.pot": 5}]).json() == {"State.species": ["yew"]})
    finally:
        assert [first.stop(), second.stop()] == [0, 0], first.said() + second.said()


# The module that the functions below import; only a test has it.
farm_tools: Any = None


def doubled_by_an_import(cls: Any, ts: Any, x: Any) -> Any:
    from farm_tools import double  # noqa: PLC0415 (no server has this module)

    return double(x)


def doubled_by_a_module(frame: Any) -> Any:
    return farm_tools.double(frame)


def doubled_if_possible(cls: Any, ts: Any, x: Any) -> Any:
    try:
        import farm_tools as tools  # noqa: PLC0415
    except ImportError:
        return (x * 2).rename("doubled")
    return tools.double(x)


@pytest.mark.parametrize("preview", [True, False])
def test_a_commit_of_functions_that_import_what_the_server_lacks_is_refused(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, preview: bool
) -> None:
    monkeypatch.setitem(sys.modules, "farm_tools", ModuleType("farm_tools"))
    monkeypatch.setitem(globals(), "farm_tools", sys.modules["farm_tools"])
    garden_graph, by_module = garden.graph(), by_value(doubled_by_a_module)
    readings = next(spec for spec in garden_graph.datasets if spec.name == "Readings")
    function = PythonFunction(name="by_module", source_code="", pickled=by_module)
    watered = replace(
        readings,
        name="Watered",
        sources=(),
        pipelines=(
            PipelineSpec(
                name="water", inputs=("Readings",), operator=Transform(of=Input(dataset="Readings"), function=function)
            ),
        ),
    )
    sieved = replace(
        readings,
        name="Sieved",
        sources=(replace(readings.sources[0], where=Computed(by=replace(function, name="sieve"))),),
    )

    def yard(name: str, function: Any) -> FeaturesetSpec:
        outputs, inputs = (f"{name}.doubled",), (f"{name}.x",)
        made = PythonExtractor(
            name="double",
            inputs=inputs,
            outputs=outputs,
            datasets=(),
            version=0,
            source_code="",
            pickled=by_value(function),
        )
        features = tuple(FeatureSpec(name=feature, dtype=INT) for feature in ("x", "doubled"))
        return FeaturesetSpec(name=name, features=features, extractors=(made,), metadata=readings.metadata)

    def commit(*more: FeaturesetSpec, datasets: tuple[DatasetSpec, ...] = (), preview: bool) -> httpx.Response:
        wanted = Graph(datasets=datasets, featuresets=more)
        content = encode_commit(CommitRequest(message="", graph=wanted, preview=preview, incremental=True))
        return server.http.post("/commit", content=content)

    far, safe = yard("Far", doubled_by_an_import), yard("Safe", doubled_if_possible)
    answer = commit(far, safe, datasets=(watered, sieved), preview=preview)
    assert answer.status_code == 400, answer.text
    *lines, remedy = answer.json()["err_msg"].splitlines()
    assert sorted(lines) == [
        f"function {name} can't run on the server: No module named 'farm_tools'"
        for name in ("by_module of Watered", "double of Far", "sieve of Sieved")
    ]
    assert "@includes" in remedy
    # An import that may fail needs no module. The commit is previewed only, since other tests share the server.
    assert commit(safe, preview=True).status_code == 200


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
    ("/query", "[]", 400, "the body is a list"),
    ("/query", "null", 400, "the body is null"),
    ("/query", "{}", 400, "inputs is missing"),
    ("/query", '{"inputs": "Tap.pot"}', 400, "inputs is a string"),
    ("/query", '{"inputs": [1], "outputs": []}', 400, "inputs has to be a list of names"),
    ("/query", '{"inputs": ["Tap.pot"], "outputs": {}}', 400, "outputs is an object"),
    ("/query", '{"inputs": ["Tap.pot"], "outputs": ["State.size"]}', 400, "data is missing"),
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
    ("/query", QUERY % '[{"Tap.pot": 1}], "timestamps": []', 400, "there are 0, but 1 rows"),
    ("/query", QUERY % '[], "log": true, "sampling_rate": "half"', 400, "from 0 to 1"),
    ("/query", QUERY % '[], "log": 1', 400, "log is a number"),
    ("/query", QUERY % '[], "workflow": 1', 400, "workflow is a number"),
    ("/query", QUERY % '[], "sampling_rate": 2', 400, "from 0 to 1"),
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
    ("/log", "{}", 400, "webhook is missing"),
    ("/log", '{"webhook": "no", "endpoint": "pots", "data": []}', 404, "webhooks: garden"),
    ("/log", '{"webhook": "garden", "endpoint": "no", "data": []}', 404, "endpoints: "),
    ("/log", LOG % "{", 400, "isn't JSON"),
    ("/log", LOG % "null", 400, "data is null"),
    ("/log", LOG % '[null, [], 1, ""]', 422, "none of the 4 rows was accepted"),
    ("/log", LOG % '{"pot": [1], "species": []}', 400, "differ in length"),
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
    ("/nothing", "", 404, "POST /api/v1/query"),
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Tap.pot", "pot", "species", "bought", "size"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    st.sampled_from(["log", "query", "lookup"]),
    st.dictionaries(
        st.sampled_from(
            [
                "webhook",
                "endpoint",
                "data",
                "inputs",
                "outputs",
                "timestamps",
                "log",
                "workflow",
                "sampling_rate",
                "keys",
                "fields",
            ]
        ),
        JSON,
    ),
    JSON,
)
def test_no_json_makes_the_server_fail(
    server: ServerProcess, target: str, body: dict[str, object], data: object
) -> None:
    match target:
        case "log":
            path, full = "/log", {"webhook": "garden", "endpoint": "pots", "data": data, **body}
        case "query":
            path, full = "/query", {"inputs": ["Tap.pot"], "outputs": ["State"], "data": data, **body}
        case _:
            path, full = "/dataset/Pots/lookup", {"keys": data, **body}
    answer = server.http.post(path, content=json.dumps(full))
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["code"]
        assert answer.json()["err_msg"]


def test_methods_branches_encodings_and_sizes(server: ServerProcess) -> None:
    wrong = server.http.get("/query")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["code"]) == (405, "POST", "wrong_method")
    for header in ("X-FENNEL-BRANCH", "X-CARAWAY-BRANCH"):
        assert server.http.get("/health", headers={header: "main"}).status_code == 200
        elsewhere = server.http.post("/query", json={}, headers={header: "dev"})
        assert (elsewhere.status_code, elsewhere.json()["err_msg"]) == (404, "there is no branch 'dev'; branches: main")
    for encoding, body in (("gzip", b"no"), ("gzip", b""), ("br", b"{}"), ("deflate", b"{}")):
        answer = server.http.post("/query", content=body, headers={"Content-Encoding": encoding})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input"), encoding
    large = b"[" + b" " * (33 * 1024 * 1024) + b"]"
    assert server.http.post("/log", content=large).status_code == 413
    assert (
        server.http.post("/log", content=(large[at : at + 2**20] for at in range(0, len(large), 2**20))).status_code
        == 413
    )
