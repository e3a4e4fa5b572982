"""Tests that answers conform to the document, in process, over definitions without rows."""

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from caraway.config.settings import ServerSettings
from caraway.erasure.keys import ErasedKeys
from caraway.ingest.endpoints import Endpoints
from caraway.ingest.service import IngestService
from caraway.plan.planner import plan_graph
from caraway.query.catalog import Catalog
from caraway.query.executor import QueryEngine
from caraway.server.access.gate import Gate
from caraway.server.access.limits import AccessLimits
from caraway.server.access.sites import Sites
from caraway.server.app import App
from caraway.server.freshness.freshness import Freshness
from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.arrow import read_columns
from caraway.server.handlers.context import ServerContext
from caraway.server.http.endpoints import API, Router, bound
from caraway.server.surface import DOCUMENT, ENDPOINTS
from caraway.server.tracing.spans import Tracer
from caraway.state.model import BranchRecord, CommitRecord
from caraway.topics.producer import TopicItem
from tests.unit.query import garden
from tests.unit.server.test_access import Headers, Nothing

MADE: Any = SimpleNamespace
NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
QUERY = {"inputs": ["Tap.pot"], "outputs": ["State.species", "State.size"], "data": [{"Tap.pot": 1}]}
UNREAD = Freshness(dataset="Pots", seconds=61.5, delay_seconds=0.02, served_until=1.7e9, waits_for="the job of Pots")
POT = {"pot": 1, "species": "oak", "size": 1.5, "bought": "2026-01-01T00:00:00Z"}
LOG = {"webhook": "garden", "endpoint": "pots"}


class Writer:
    """A writer whose records are durable at once."""

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        del topic, items
        future: Future[None] = Future()
        future.set_result(None)
        return future


class Exchange:
    """The connection of a request with a body, which keeps the answer."""

    def __init__(self, given: bytes) -> None:
        self.given = given

    async def __call__(self) -> bytes:
        return self.given

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.media_type, self.body = status, dict(headers)["content-type"], body


@pytest.fixture(scope="module")
def app() -> App:
    return make_app()


def make_app(tracer: Tracer | None = None, writer: Any = None, freshness: Any = None) -> App:
    """Return an application over the garden, an index without rows and a state of one commit."""
    graph = garden.graph()
    plan = plan_graph(graph)
    served = MADE(
        queries=QueryEngine(Catalog("v", graph), Nothing()),
        endpoints=Endpoints(plan),
        version="v",
        graph=graph,
        plan=plan,
    )
    branch = BranchRecord(name="main", head="a" * 32, serving=None, created_at=NOW)
    commit = CommitRecord(
        id="a" * 32,
        branch="main",
        parent=None,
        message="m",
        author="ada",
        created_at=NOW,
        fingerprint="f",
        summary=("all",),
    )
    deployment = MADE(
        graphs=MADE(require_served_graph=lambda _branch="main": served),
        state=MADE(
            branch_heads=lambda: MADE(branches=(branch,)),
            history=lambda _branch, limit: (commit,)[:limit],
            jobs=tuple,
            ledger=lambda closed: ()[:closed],
            assets=tuple,
            references=dict,
            leases=lambda _prefix: (),
        ),
        freshness=freshness or MADE(ages=dict, of=lambda _plan: [UNREAD]),
        index=MADE(positions=list, status=lambda: {"indexes": []}),
        health=MADE(problems=dict),
        lags=MADE(look=tuple),
        sinks=MADE(statuses=list),
        sources=MADE(statuses=list),
        newest=MADE(newest=lambda *_, **__: []),
        erased=ErasedKeys(dict),
        secrets=MADE(refresh=lambda: None, get=str, names=dict),
    )
    context = ServerContext(
        limits=AccessLimits(deployment.graphs),
        keep=lambda *_, **__: None,
        deployment=deployment,
        ingest=IngestService(writer or Writer(), "nowhere:1"),
        document=DOCUMENT,
    )
    gate = Gate(MADE(begin=lambda _act: 1, end=lambda *_: None), None)
    return App(Router(bound(ENDPOINTS, context)), gate, sites=Sites(ServerSettings()), tracer=tracer)


def ask(app: App, method: str, path: str, body: object = None, **headers: str) -> Exchange:
    """Send a request with a JSON body, or with one of bytes."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = {"host": "127.0.0.1:8100", "content-length": str(len(raw)), "content-type": "application/json"}
    path, _, query = path.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    scope: Any = MADE(method=method, path=path, query_string=query, headers=Headers(**{**given, **named}))
    exchange: Any = Exchange(raw)
    asyncio.run(app.__rsgi__(scope, exchange))
    answered: Exchange = exchange
    return answered


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
        jsonschema.validate(json.loads(answer.body), schema, cls=jsonschema.Draft202012Validator)
    else:
        assert answer.media_type.partition(";")[0] in content


def test_instants_are_iso_8601_with_an_offset(app: App) -> None:
    assert json.loads(ask(app, "GET", f"{API}/branch/list").body)["branches"][0]["created_at"] == NOW.isoformat()


def test_queries_in_arrow(app: App) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"Tap.pot": [1, 2]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body, path = sink.getvalue().to_pybytes(), f"{API}/query?outputs=State.species"
    assert read_columns(ask(app, "POST", path, body, content_type=ARROW).body) == {"State.species": ["fern", "fern"]}
    in_json = ask(app, "POST", path, body, content_type=ARROW, accept="application/json")
    assert json.loads(in_json.body) == {"State.species": ["fern", "fern"]}
    assert read_columns(ask(app, "POST", f"{API}/query", QUERY, accept=ARROW).body)["State.species"] == ["fern"]
    for wrong in (f"{API}/query", f"{path}&sampling_rate=half", f"{path}&log=perhaps"):
        assert ask(app, "POST", wrong, body, content_type=ARROW).status == 400
