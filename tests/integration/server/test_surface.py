"""Tests that the OpenAPI document holds, and that bodies come and go in all forms."""

import gzip
from copy import deepcopy
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.arrow import read_columns
from caraway.server.surface import DOCUMENT
from tests.effort import examples
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_api import pot

# Random definitions could be a commit that empties the branch of the other tests. On branches of random names nothing
# is made or deleted: the server keeps them for later tests.
WITHOUT_COMMIT: dict[str, Any] = deepcopy(
    {
        **DOCUMENT,
        "paths": {path: of for path, of in DOCUMENT["paths"].items() if not path.endswith(("commit", "source/try"))},
    }
)
for path in ("init", "delete", "branch/rollback"):
    del WITHOUT_COMMIT["paths"][f"/api/v1/{path}"]["post"]["parameters"]
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
# No engine runs here, so each request would wait to its limit.
_SECONDS = WITHOUT_COMMIT["components"]["schemas"]["WaitBody"]["properties"]["seconds"]
_LONGEST_S = _SECONDS["maximum"]
_SECONDS["maximum"] = 0.1
surface = schemathesis.openapi.from_dict(WITHOUT_COMMIT)


@schemathesis.serializer(ARROW)
def bytes_as_they_are(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@surface.parametrize()
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_document_holds(case: Any, server: ServerProcess) -> None:
    if case.path == "/api/v1/wait":
        # A request that states no limit waits for 10 s.
        if isinstance(case.body, NotSet):
            case.body, case.media_type = {}, "application/json"
        if isinstance(case.body, dict):
            seconds = case.body.setdefault("seconds", 0.1)
            if isinstance(seconds, (int, float)) and 0.1 < seconds <= _LONGEST_S:
                case.body["seconds"] = 0.1
    case.call_and_validate(base_url=str(server.settings.server.url), checks=CHECKS, timeout=40)


@pytest.fixture(scope="module")
def pots(server: ServerProcess) -> ServerProcess:
    server.log("pots", [pot(901, "oak", size=12.5), pot(902, "elm")])
    data = {"Tap.pot": [901, 902]}
    eventually(lambda: server.query(["State.species"], data).json() == {"State.species": ["oak", "elm"]}, server.said)
    return server


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


EXPECTED = {"State.species": ["oak", "elm", "fern"], "State.size": [12.5, None, None]}


def test_arrow_in_and_out(pots: ServerProcess) -> None:
    body = stream(pa.table({"Tap.pot": [901, 902, 903]}))
    path = f"/query?outputs={','.join(EXPECTED)}"
    answer = pots.http.post(path, content=body, headers={"content-type": ARROW})
    assert answer.headers["content-type"] == ARROW
    assert read_columns(answer.content) == EXPECTED
    json = pots.http.post(path, content=body, headers={"content-type": ARROW, "accept": "application/json"})
    assert json.json() == EXPECTED
    out = pots.http.post(
        "/query",
        json={"inputs": ["Tap.pot"], "outputs": list(EXPECTED), "data": {"Tap.pot": [901, 902, 903]}},
        headers={"accept": ARROW},
    )
    assert read_columns(out.content) == EXPECTED
    past = stream(pa.table({"Tap.pot": [901], "timestamps": [1]}))
    then = pots.http.post(path, content=past, headers={"content-type": ARROW})
    assert read_columns(then.content) == {"State.species": ["fern"], "State.size": [None]}
    for broken, of in ((b"no", path), (body[:-20], "/query"), (b"", path)):
        refused = pots.http.post(of, content=broken, headers={"content-type": ARROW})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")


def test_large_answers_are_compressed_when_asked_for(pots: ServerProcess) -> None:
    body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": {"Tap.pot": [901] * 2_000}}
    plain = pots.http.post("/query", json=body, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == {"State.species": ["oak"] * 2_000}
    with (
        httpx.Client(base_url=pots.http.base_url) as raw,
        raw.stream("POST", "/query", json=body, headers={"accept-encoding": "gzip"}) as answer,
    ):
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(answer.iter_raw())) == plain.content
    zstd = pa.Codec("zstd").compress(orjson.dumps(body), asbytes=True)
    assert pots.http.post("/query", content=zstd, headers={"content-encoding": "zstd"}).json() == plain.json()


def test_limits_on_rows(pots: ServerProcess) -> None:
    body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": {"Tap.pot": [901] * 100_001}}
    refused = pots.http.post("/query", json=body)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


def test_an_extractor_that_fails_can_be_asked_again(pots: ServerProcess) -> None:
    """Ask again after a failure: extractors run in another process, which a failing one leaves as it is."""
    for _ in range(3):
        failed = pots.query(["Faulty.broken"], {"Tap.pot": [901]})
        assert (failed.status_code, failed.json()["code"]) == (422, "extractor_failed")
        assert pots.query(["State.advice"], {"Tap.pot": [903]}).json() == {"State.advice": ["none"]}


def test_the_page_and_the_document(server: ServerProcess) -> None:
    assert server.http.get("/openapi.json").json() == DOCUMENT
    page = server.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/get-online-features" in page.text
