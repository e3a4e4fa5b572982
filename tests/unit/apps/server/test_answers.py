"""Tests that answers conform to the document, in process, over definitions without rows."""

import gzip
import json
from types import SimpleNamespace
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from caraway.apps.server.app import App
from caraway.apps.server.freshness.freshness import Freshness
from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.handlers.arrow import read_columns
from caraway.apps.server.health import KnownLosses
from caraway.apps.server.http.endpoints import API
from caraway.apps.server.surface import DOCUMENT
from caraway.dataplane.ingest.table import MAX_ROWS
from caraway.dataplane.topics.truncation import Continuation
from caraway.errors import UnavailableError
from caraway.state.losses import Loss
from tests.unit.apps.server.asking import ask, send
from tests.unit.apps.server.console.site import NOW, site
from tests.unit.compute.query import garden

QUERY = {"inputs": ["Tap.pot"], "outputs": ["State.species", "State.size"], "data": [{"Tap.pot": 1}]}
UNREAD = Freshness(dataset="Pots", seconds=61.5, delay_seconds=0.02, served_until=1.7e9, waits_for="the job of Pots")
POT = {"pot": 1, "species": "oak", "size": 1.5, "bought": "2026-01-01T00:00:00Z"}
LOG = {"webhook": "garden", "endpoint": "pots"}


@pytest.fixture(scope="module")
def app() -> App:
    return make_app()


def make_app(**parts: Any) -> App:
    """Return an application over the garden, without tokens and rows, of which some parts are a test's own."""
    unread: Any = SimpleNamespace(ages=dict, of=lambda _plan: [UNREAD])
    return site(garden.graph(), **{"tokens": False, "freshness": unread, **parts}).app


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("post", f"{API}/query", QUERY, 200),
        ("post", f"{API}/query", {**QUERY, "data": json.dumps(QUERY["data"]), "log": True}, 200),
        ("post", f"{API}/query", {**QUERY, "timestamps": 3}, 400),
        ("post", f"{API}/query/explain", QUERY, 200),
        ("post", f"{API}/query/explain", {**QUERY, "data": None}, 200),
        ("post", "/get-online-features", {"features": ["State:species"], "entities": {"Tap.pot": [1]}}, 200),
        ("post", "/get-online-features", {"features": [], "entities": {}}, 400),
        ("post", f"{API}/dataset/{{name}}/lookup", {"keys": [{"pot": 1}]}, 200),
        ("post", f"{API}/log", {**LOG, "data": [POT, 1]}, 200),
        ("post", f"{API}/log", {**LOG, "data": [1]}, 422),
        ("post", f"{API}/wait", {"seconds": 11}, 400),
        ("post", f"{API}/branch/rollback", None, 400),
        ("post", f"{API}/branch/promote", None, 400),
        ("get", f"{API}/branch/list", None, 200),
        ("get", f"{API}/branch/log", None, 200),
        ("get", f"{API}/branch/log?limit=x", None, 400),
        ("get", f"{API}/branch/diff", None, 400),
        ("get", f"{API}/ledger", None, 200),
        ("get", f"{API}/status", None, 200),
        ("get", f"{API}/health", None, 200),
        ("get", f"{API}/freshness", None, 200),
        ("get", f"{API}/datasets", None, 200),
        ("get", f"{API}/xray", None, 200),
        ("get", f"{API}/xray?datasets=Pots&properties=name,tags", None, 200),
        ("get", f"{API}/xray?datasets=Nowhere", None, 404),
        ("get", f"{API}/xray?properties=nam", None, 400),
        ("get", f"{API}/lineage", None, 200),
        ("get", f"{API}/dataset/{{name}}/inspect?n=3&fields=pot", None, 200),
        ("get", f"{API}/dataset/{{name}}/inspect?fields=pots", None, 400),
        ("get", f"{API}/dataset/{{name}}/inspect?n=0", None, 400),
        ("get", f"{API}/secrets", None, 200),
        ("get", f"{API}/secret/{{name}}", None, 200),
        ("get", f"{API}/openapi.json", None, 200),
        ("get", f"{API}/docs", None, 200),
        ("get", "/", None, 200),
    ],
)
def test_an_answer_conforms_to_the_document(app: App, method: str, path: str, body: object, status: int) -> None:
    answer = ask(app, method.upper(), path.replace("{name}", "Pots"), body)
    assert answer.status == status, answer.body
    content = DOCUMENT["paths"][path.partition("?")[0]][method]["responses"][str(status)]["content"]
    if "application/json" in content:
        schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
        jsonschema.validate(answer.json, schema, cls=jsonschema.Draft202012Validator)
    else:
        assert answer.header("content-type").partition(";")[0] in content


def test_only_callers_with_a_token_get_the_reasons_of_bad_health() -> None:
    made = site(garden.graph())
    made.problems["kafka"] = "10.0.0.7:9092 doesn't answer"
    token = {"authorization": "Bearer nothing"}
    for headers, shown in (({}, False), ({"authorization": "Bearer guessed"}, False), (token, True)):
        # A load balancer asks by any name, and gets the status.
        answer = send(made.app, "GET", f"{API}/health", headers={"host": "balancer.example", **headers})
        assert (answer.status, answer.json["status"], answer.json["code"]) == (503, "unavailable", "unavailable")
        assert ("10.0.0.7" in answer.body.decode(), "problems" in answer.json) == (shown, shown)
        made.problems.clear()
        assert send(made.app, "GET", f"{API}/health", headers=headers).json == {"status": "ok"}
        made.problems["kafka"] = "10.0.0.7:9092 doesn't answer"


def test_what_topics_have_lost_is_told_with_the_remedy() -> None:
    place = Continuation("events.Pots", {0: 300, 1: 5}, {0: 100, 1: 5})
    text = place.told("the archive", "The rows are out of the table")
    losses = [Loss(topic="events.Pots", follower=f"s{n}", kind="sink", text=f"{n}: {text}") for n in range(7)]
    made = site(garden.graph(), tokens=False, losses=losses)
    for path in ("health", "status"):
        warning = ask(made.app, "GET", f"{API}/{path}").json["warning"]
        assert "topic events.Pots lacks records that the archive had read (0@100 to 300)" in warning
        assert "Send again what was logged before the failure" in warning
        assert "and 2 more" in warning
    page = ask(made.app, "GET", "/metrics").body.decode()
    assert 'caraway_lost_records{reader="sink",topic="events.Pots"} 1.0' in page
    ask(site(garden.graph(), tokens=False).app, "GET", "/metrics")
    assert "caraway_lost_records{" not in generate_latest().decode()


def test_losses_are_read_now_and_then_and_stay_known_while_postgres_is_away() -> None:
    loss = Loss(topic="t", follower="archive", kind="archive", text="lost")
    answers: list[list[Loss]] = [[loss]]
    now = [0.0]

    def read() -> list[Loss]:
        if not answers:
            raise UnavailableError("Postgres doesn't answer")
        return answers.pop()

    known = KnownLosses(read, clock=lambda: now[0])
    assert [known(), known.warning()] == [[loss], "lost"]
    now[0] += 10
    assert known() == [loss]
    answers.append([])
    assert known() == [loss]
    now[0] += 10
    assert known() == []


def test_instants_are_iso_8601_with_an_offset(app: App) -> None:
    assert ask(app, "GET", f"{API}/branch/list").json["branches"][0]["created_at"] == NOW.isoformat()


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_queries_in_arrow(app: App) -> None:
    body, path = stream(pa.table({"Tap.pot": [1, 2]})), f"{API}/query?outputs=State.species"
    answer = ask(app, "POST", path, body, content_type=ARROW)
    assert (answer.header("content-type"), read_columns(answer.body)) == (ARROW, {"State.species": ["fern", "fern"]})
    in_json = ask(app, "POST", path, body, content_type=ARROW, accept="application/json")
    assert in_json.json == {"State.species": ["fern", "fern"]}
    assert read_columns(ask(app, "POST", f"{API}/query", QUERY, accept=ARROW).body)["State.species"] == ["fern"]
    past = stream(pa.table({"Tap.pot": [1], "timestamps": [1]}))
    assert read_columns(ask(app, "POST", path, past, content_type=ARROW).body) == {"State.species": ["fern"]}
    for wrong in (f"{API}/query", f"{path}&sampling_rate=half", f"{path}&log=perhaps"):
        assert ask(app, "POST", wrong, body, content_type=ARROW).status == 400
    for broken in (b"no", b"", b"\0"):
        assert ask(app, "POST", path, broken, content_type=ARROW).status == 400


def test_large_answers_are_compressed_when_asked_for(app: App) -> None:
    asked = {**QUERY, "data": {"Tap.pot": [1] * 30_000}}
    plain = ask(app, "POST", f"{API}/query", asked)
    packed = ask(app, "POST", f"{API}/query", asked, accept_encoding="gzip")
    assert (plain.header("content-encoding"), packed.header("content-encoding")) == ("", "gzip")
    assert gzip.decompress(packed.body) == plain.body


def test_the_document_and_limits_on_rows_are_told(app: App) -> None:
    assert ask(app, "GET", f"{API}/openapi.json").json == DOCUMENT
    refused = ask(app, "POST", f"{API}/query", {**QUERY, "data": {"Tap.pot": [1] * (MAX_ROWS + 1)}})
    assert (refused.status, refused.json["code"]) == (413, "too_large")
