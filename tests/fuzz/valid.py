"""Valid requests for every endpoint, over the definitions that the tests of queries share: what the fuzzer mutates."""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from caraway.apps.server.pages.session import FORM
from caraway.apps.server.pages.surface import PAGES
from caraway.compute.profiles.tables import profiled
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from tests.fuzz.trials import TRIED, definitions
from tests.unit.compute.query import garden

API = "/api/v1"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PROTOBUF = "application/octet-stream"
TRY = f"{API}/source/try"
# Commits and changes of branches go here, so that the definitions that the healthy caller reads stay as they are.
BRANCH = "fuzz"
# The profile of a feature of the garden, in base64.
REFERENCE = b64encode(profiled([pa.table({"State.species": ["oak", "elm", None]})]).to_bytes()).decode()


@dataclass(frozen=True, slots=True)
class Valid:
    """A request as a well-behaved client makes it.

    `document` is the value that a body of JSON was made of, `table` the one that a body of Arrow was made of.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    document: Any = None
    table: pa.Table | None = None


def _json(method: str, path: str, document: object, *headers: tuple[str, str]) -> Valid:
    return Valid(method, path, orjson.dumps(document), JSON, headers, document=document)


def _arrow(path: str, table: pa.Table, *headers: tuple[str, str]) -> Valid:
    return Valid("POST", path, arrow_bytes(table), ARROW, headers, table=table)


def arrow_bytes(table: pa.Table) -> bytes:
    """Write a table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


POTS = {"pot": [1, 2], "species": ["oak", "elm"], "size": [1.5, None], "bought": ["2024-01-01T00:00:00Z", 1704067200]}
READINGS = [{"pot": 1, "moisture": 0.5, "at": "2024-01-01T00:00:00Z"}, {"pot": 2, "moisture": 0.25, "at": 1704067200}]
ON_BRANCH = ("X-Caraway-Branch", BRANCH)
# The fields of the console's forms, and the parameters of the addresses of its other pages.
FORMS: Mapping[str, Mapping[str, str]] = {
    "/console/sign-in": {"token": "fuzz", "next": "/console/catalog"},
    "/console/sign-out": {},
    "/console/query": {"outputs": "State.species", "rows": '{"Tap.pot": [1, 2]}'},
    "/console/why": {"feature": "State.species", "inputs": '{"Tap.pot": 1}', "at": "2024-01-01"},
    "/console/replay": {"name": "0-0", "row": '{"pot": 1}'},
    "/console/preview": {"target": "roll_back", "name": "0"},
    "/console/change": {"target": "roll_back", "name": "0"},
    "/console/offline/cancel": {"name": "00000000-0000-0000-0000-000000000000"},
    "/console/job/pause": {"name": "fuzz", "pause": "yes"},
    "/console/tokens": {"account": "fuzz", "role": "nothing", "days": "1"},
    "/console/revoke": {"name": "fuzz"},
}
PARAMETERS = "name=Pots&feature=State.species&outputs=State.species&dataset=Pots&from=main&to=fuzz&limit=5"


def pages(session: str) -> tuple[Valid, ...]:
    """Return a request of a browser for each page of the console, in a session, which only others sign out of."""
    made = []
    for page in PAGES:
        cookie = "fuzz" if page.path == "/console/sign-out" else session
        headers = (("Cookie", f"caraway_session={cookie}"), ("Sec-Fetch-Site", "same-origin"))
        if page.takes_body:
            code = hmac.digest(cookie.encode(), b"caraway console form", hashlib.sha256).hex()
            form = urlencode({"code": code, **FORMS[page.path]}).encode()
            made.append(Valid("POST", page.path, form, FORM, headers))
        else:
            made.append(Valid("GET", f"{page.path.replace('{name}', 'fuzz')}?{PARAMETERS}", headers=headers))
    return tuple(made)


def agents() -> tuple[Valid, ...]:
    """Return requests of an agent to the MCP server over HTTP: one for each tool, and those around them."""
    about = {"outputs": ["State.species"], "inputs": ["Tap.pot"]}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
    tools: Mapping[str, Mapping[str, Any]] = {
        "status": {},
        "search_catalog": {"text": "state", "kind": "feature", "tag": "pii"},
        "describe": {"name": "Pots"},
        "lineage": {"name": "State.species", "direction": "upstream", "depth": 3},
        "sample_rows": {"dataset": "Pots", "n": 3},
        "lookup_rows": {"dataset": "Pots", "keys": [{"pot": 1}], "fields": ["species"], "at": "2024-01-01"},
        "query_features": {"outputs": ["State.species"], "rows": [{"Tap.pot": 1}]},
        "explain_query": about,
        "commits": {"limit": 3},
        "dead_letters": {"dataset": "Pots", "limit": 3},
        "skew": {"feature": "State.species", "hours": 2},
        "preview_commit": {"file": "/etc/passwd"},
    }
    asked: list[tuple[str, Mapping[str, Any]]] = [
        ("initialize", hello),
        ("tools/list", {}),
        ("ping", {}),
        ("resources/read", {"uri": "file:///etc/passwd"}),
        *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in tools.items()),
    ]
    accepted = ("Accept", "application/json, text/event-stream")
    return tuple(
        _json("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, accepted)
        for method, params in asked
    )


def requests() -> tuple[Valid, ...]:
    """Return a request for each endpoint, and several for those that take data."""
    graph = garden.graph()
    commit = encode_commit(CommitRequest(message="fuzz", graph=graph))
    given = pa.table({"Tap.pot": pa.array([1, 2, 3], pa.int64()), "Tap.raw": pa.array(["1", "2", "3"])})
    state = {"inputs": ["Tap.pot"], "outputs": ["State.species", "State.size", "State.mean"]}
    return (
        _json("POST", f"{API}/query", {**state, "data": [{"Tap.pot": 1}, {"Tap.pot": 2}]}),
        _json("POST", f"{API}/query", {**state, "data": {"Tap.pot": [1, 2]}, "timestamps": ["2024-01-01", 1704067200]}),
        _json("POST", f"{API}/query", {"inputs": ["Tap.pot"], "outputs": ["State.advice"], "data": [{"Tap.pot": 1}]}),
        _json(
            "POST", f"{API}/query", {"inputs": ["Tap.raw"], "outputs": ["ByText.species"], "data": {"Tap.raw": ["7"]}}
        ),
        _json("POST", f"{API}/query", {**state, "data": [{"Tap.pot": 1}], "log": True, "workflow": "fuzz"}),
        _arrow(f"{API}/query?outputs=State.species,State.mean", given),
        _json("POST", f"{API}/query/explain", {**state, "data": [{"Tap.pot": 1}], "runs": 2}),
        _json(
            "POST",
            "/get-online-features",
            {"features": ["State:species", "Notes:note"], "entities": {"pot": [1, 2]}, "full_feature_names": True},
        ),
        _json("POST", f"{API}/log", {"webhook": "garden", "endpoint": "pots", "data": POTS}),
        _json("POST", f"{API}/log", {"webhook": "garden", "endpoint": "readings", "data": READINGS}),
        _json(
            "POST",
            f"{API}/log",
            {"webhook": "garden", "endpoint": "readings", "data": READINGS},
            ("Idempotency-Key", "fuzz-1"),
            ("Caraway-Elapsed-Ms", "10"),
        ),
        _json(
            "POST",
            f"{API}/log",
            {"webhook": "garden", "endpoint": "readings", "data": READINGS},
            ("Idempotency-Key", "fuzz-2"),
            ("Caraway-Elapsed-Ms", "86400000"),
        ),
        Valid("POST", f"{API}/commit?incremental=true", commit, PROTOBUF, (ON_BRANCH,)),
        Valid("POST", f"{API}/commit?preview=true", commit, PROTOBUF, (ON_BRANCH,)),
        _json(
            "POST", f"{API}/dataset/Pots/lookup", {"keys": [{"pot": 1}, {"pot": 2}], "fields": ["species", "bought"]}
        ),
        _json("POST", f"{API}/dataset/Moisture/lookup", {"keys": [{"pot": 1}], "timestamps": [1704067200]}),
        _json("POST", f"{API}/dataset/Pots/erase", {"erase_keys": [{"pot": 9}]}, ON_BRANCH),
        Valid("GET", f"{API}/dataset/Pots/erasures"),
        Valid("GET", f"{API}/secret/fuzz"),
        _json("POST", f"{API}/secret/fuzz", {"value": "s"}),
        _json("PATCH", f"{API}/secret/fuzz", {"value": "t"}),
        Valid("DELETE", f"{API}/secret/fuzz"),
        Valid("GET", f"{API}/secrets"),
        _json("POST", f"{API}/init", {}, ON_BRANCH),
        _json("POST", f"{API}/init", {"clone_from": "main"}, ("X-Fennel-Branch", "fuzz-clone")),
        _json("POST", f"{API}/delete", {}, ("X-Fennel-Branch", "fuzz-clone")),
        Valid("GET", f"{API}/branch/list"),
        Valid("GET", f"{API}/branch/log?limit=5"),
        Valid("GET", f"{API}/branch/diff?from=main&to=fuzz"),
        _json("POST", f"{API}/branch/rollback", {"commit_id": 1}, ON_BRANCH),
        _json("POST", f"{API}/branch/promote", {"source": "main", "message": "m"}, ON_BRANCH),
        _json("POST", f"{API}/job/pause", {"job_id": "fuzz", "paused": True}),
        Valid("GET", f"{API}/datasets"),
        Valid("GET", f"{API}/definition/Pots"),
        Valid("GET", f"{API}/features?text=species&limit=5"),
        Valid("GET", f"{API}/xray?datasets=Pots&properties=name,tags"),
        Valid("GET", f"{API}/lineage"),
        Valid("GET", f"{API}/dataset/Pots/inspect?n=3&fields=pot,species"),
        Valid("GET", f"{API}/dead_letters?limit=5"),
        Valid("GET", f"{API}/dead_letters/0-0"),
        _json("POST", f"{API}/dead_letters/0-0/replay", {}),
        _json("POST", f"{API}/dead_letters/0-0/replay", {"row": {"pot": 1}}),
        Valid("POST", f"{TRY}?name=Pots&rows=3"),
        *(Valid("POST", f"{TRY}?name={TRIED}&rows=3", sent, PROTOBUF) for sent in definitions().values()),
        _json("POST", f"{API}/wait", {"seconds": 0.1}),
        Valid("GET", f"{API}/ledger"),
        Valid("GET", f"{API}/archive"),
        _json(
            "POST",
            f"{API}/query_offline",
            {
                "input_features": ["Tap.pot"],
                "output_features": ["State.species"],
                "timestamp_column": "at",
                "input": {"Pandas": {"Tap.pot": [1, 2], "at": ["2024-01-01", 1704067200]}},
                "use_v2": True,
            },
        ),
        _arrow(f"{API}/query_offline?inputs=Tap.pot&outputs=State.species&timestamp_column=Tap.raw", given),
        Valid("GET", f"{API}/query_offline/status?request_id=0"),
        _json("POST", f"{API}/query_offline/cancel?request_id=0", {}),
        Valid("GET", f"{API}/query_offline/list"),
        Valid("GET", f"{API}/query_offline/explain?inputs=Tap.pot&outputs=State.species"),
        _json(
            "POST",
            f"{API}/why",
            {"feature": "State.species", "inputs": {"Tap.pot": 1}, "at": "2024-01-01", "limit": 5, "wait": 0},
        ),
        Valid("GET", f"{API}/why?request_id=0&wait=0"),
        Valid("GET", f"{API}/skew?feature=State.species&hours=2"),
        Valid("GET", f"{API}/drift?feature=State.species&hours=2&reference=week"),
        Valid("GET", f"{API}/drift/profiles?feature=State.species&hours=2&reference=week"),
        _json("POST", f"{API}/drift/reference", {"profile": REFERENCE}),
        Valid("GET", f"{API}/drift/findings?limit=5"),
        Valid("GET", f"{API}/drift/datasets?limit=5"),
        Valid("GET", f"{API}/drift/datasets/Pots?hours=2&reference=week"),
        Valid("GET", f"{API}/drift/datasets/Pots/profile?hours=2"),
        Valid("GET", f"{API}/tokens?limit=5&skip=1"),
        _json("POST", f"{API}/tokens", {"account": "fuzz", "roles": [], "kind": "service", "note": "", "days": 1}),
        Valid("DELETE", f"{API}/token/fuzz"),
        Valid("GET", f"{API}/roles"),
        Valid("GET", f"{API}/audit?limit=5&before=100"),
        Valid("GET", f"{API}/expectations?dataset=State&hours=2&samples=1"),
        Valid("GET", f"{API}/query_offline/result?request_id=0&part=1"),
        Valid("GET", f"{API}/health"),
        Valid("GET", f"{API}/status"),
        Valid("GET", f"{API}/problems"),
        Valid("GET", f"{API}/freshness"),
        Valid("GET", f"{API}/freshness/history"),
        Valid("GET", f"{API}/metrics"),
        Valid("GET", f"{API}/openapi.json"),
        Valid("GET", f"{API}/sign-in"),
        Valid("GET", f"{API}/docs"),
        Valid("GET", "/metrics"),
        Valid("GET", "/"),
    )
