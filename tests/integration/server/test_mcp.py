"""Tests of the MCP server with a real Caraway server and the SDK's own client, over each transport."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import orjson
import pytest
import uvicorn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from caraway.apps.mcp.asking import Server
from caraway.apps.mcp.serving import http_app, mcp_server
from caraway.apps.stack import ports
from caraway.state.permissions import Grant, Mode
from tests.integration.server.guarded import Guarded
from tests.integration.server.server_process import eventually
from tests.integration.server.test_api import pot
from tests.timeouts import scaled
from tests.tls import TLS

DEFINITIONS = """
from datetime import datetime

from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field

__owner__ = "kitchen@example.com"


@source(Webhook(name="kitchen").endpoint("{endpoint}"), disorder="1d", cdc="upsert")
@dataset(index=True)
class {name}:
    spoon: int = field(key=True)
    at: datetime = field(timestamp=True)
"""


@pytest.fixture(scope="module")
def world(guarded_garden: Guarded) -> Guarded:
    return guarded_garden


def call(server: Any, tool: str, **arguments: Any) -> tuple[bool, Any]:
    """Return whether a tool succeeded, and the JSON of its answer or the text of its error."""

    async def asked() -> tuple[bool, Any]:
        async with Client(server) as client:
            result = await client.call_tool(tool, arguments)
            text = result.content[0].text  # type: ignore[union-attr] # all answers are text
            return (False, text) if result.is_error else (True, orjson.loads(text))

    return asyncio.run(asyncio.wait_for(asked(), scaled(60)))


def answer(server: Any, tool: str, **arguments: Any) -> Any:
    succeeded, found = call(server, tool, **arguments)
    assert succeeded, found
    return found


def url_of(world: Guarded) -> str:
    return str(world.server.settings.server.url)


def of(world: Guarded, token: str) -> Any:
    return mcp_server(Server(url=url_of(world), branch="main", token=token))


def test_an_agent_reads_all_that_its_token_may_see(world: Guarded) -> None:
    world.server.log("pots", [pot(1, "oak", size=12.5), pot(2, "elm")])
    agent = of(world, world.admin)

    def species() -> object:
        # Rows that other tests wrote to the topic of the same dataset before are served until these are read.
        keys = [{"pot": 1}, {"pot": 2}]
        return answer(agent, "lookup_rows", dataset="Pots", keys=keys, fields=["species"])["data"]["species"]

    eventually(lambda: species() == ["oak", "elm"], lambda: str(species()))
    served = answer(agent, "query_features", outputs=["State.species", "State.big"], rows=[{"Tap.pot": 1}])
    assert served == world.server.query(["State.species", "State.big"], [{"Tap.pot": 1}]).json()

    def seen() -> set[tuple[int, str]]:
        # The newest rows come first.
        return {(row["pot"], row["species"]) for row in answer(agent, "sample_rows", dataset="Pots")["rows"]}

    eventually(lambda: seen() >= {(1, "oak"), (2, "elm")}, lambda: str(seen()))
    found = answer(agent, "search_catalog", text="state.b", kind="feature")["found"]
    assert [(entry["kind"], entry["name"], entry["owner"]) for entry in found] == [("feature", "State.big", "a@b.co")]
    assert answer(agent, "search_catalog", tag="pii", kind="dataset")["found"][0]["name"] == "Pots"
    assert answer(agent, "describe", name="Pots")["definitions"][0]["kind"] == "dataset"
    upstream = answer(agent, "lineage", name="State.big", direction="upstream", depth=10)
    assert {"Pots", "State.size", "Tap.pot"} <= {node["name"] for node in upstream["nodes"]}
    assert "State.advice" not in {node["name"] for node in upstream["nodes"]}
    assert answer(agent, "explain_query", outputs=["State.big"], inputs=["Tap.pot"])["steps"]
    assert answer(agent, "commits")["commits"][-1]["message"] == "test"
    assert answer(agent, "status")["topics"]
    assert answer(agent, "skew")["features"] == []
    world.server.log("pots", [{"pot": "no number"}])
    assert answer(agent, "dead_letters", dataset="Pots")["dead_letters"][0]["dataset"] == "Pots"
    # Other tests may have left dead letters on the same Kafka, of this and of other datasets.
    assert "Pots" in {name for wrong in answer(agent, "status")["wrong"] for name in wrong["datasets"]}


def test_errors_say_what_to_do(world: Guarded) -> None:
    agent = of(world, world.admin)
    succeeded, text = call(agent, "describe", name="Post")
    assert not succeeded
    assert "did you mean Pots" in text
    succeeded, text = call(agent, "lookup_rows", dataset="Pots", keys=[{"pot": n} for n in range(101)])
    assert not succeeded
    assert "at most 100 rows" in text
    succeeded, text = call(mcp_server(Server(url="http://127.0.0.1:9", branch="main", token="")), "status")
    assert not succeeded
    assert "is it running?" in text
    assert world.admin not in text


def test_a_commit_is_previewed_over_standard_input_and_output(world: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "spoons.py"
    process = StdioServerParameters(
        command=sys.executable,
        args=["-m", "caraway.apps.cli", "mcp", "--url", url_of(world)],
        env={**os.environ, "CARAWAY_TOKEN": world.admin},
    )

    texts = [DEFINITIONS.format(name=name, endpoint=name.lower()) for name in ("Spoons", "Ladles")]

    async def previews() -> list[str]:
        async with Client(stdio_client(process)) as client:
            found = []
            # Each preview sees the file as it is then.
            for text in (*texts, "import nothing_of_this_name"):
                file.write_text(text)
                result = await client.call_tool("preview_commit", {"file": str(file), "incremental": True})
                found.append(f"{result.is_error} {result.content[0].text}")  # type: ignore[union-attr]
            return found

    before = world.server.http.get("/branch/log").json()
    spoons, ladles, broken = asyncio.run(asyncio.wait_for(previews(), scaled(120)))
    assert ("Spoons" in spoons, "Ladles" in ladles, "Ladles" in spoons) == (True, True, False), (spoons, ladles)
    assert "nothing_of_this_name" in broken
    assert [text.partition(" ")[0] for text in (spoons, ladles, broken)] == ["False", "False", "True"]
    assert world.server.http.get("/branch/log").json() == before


@pytest.fixture
def served(world: Guarded) -> Iterator[str]:
    """Yield the address of an MCP server over HTTP."""
    port = ports.choose()
    app = http_app(Server(url=url_of(world), branch="main", token=None), host="127.0.0.1")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    yield f"http://127.0.0.1:{port}/mcp"
    server.should_exit = True
    thread.join(scaled(30))
    assert not thread.is_alive()


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[Any]:
    """Yield a way to an MCP server, with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as http, streamable_http_client(url, http_client=http) as streams:
        yield streams


def test_over_http_each_agent_has_the_rights_of_its_token(world: Guarded, served: str) -> None:
    _, limited = world.token("agent-over-http", Grant(modes=frozenset(Mode), without=frozenset({"pii"})))
    assert call(over_http(served, world.admin), "sample_rows", dataset="Pots")[0]
    assert not call(over_http(served, limited), "sample_rows", dataset="Pots")[0]
    assert call(over_http(served, limited), "sample_rows", dataset="Rules")[0]
    found = [entry["name"] for entry in answer(over_http(served, limited), "search_catalog", kind="dataset")["found"]]
    assert ("Rules" in found, "Pots" in found) == (True, False)
    succeeded, text = call(over_http(served, "no-such-token"), "status")
    assert not succeeded
    assert "token" in text
    # A file on the machine of the server is none of the agent's business.
    assert not call(over_http(served, world.admin), "preview_commit", file=__file__)[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic cm9vdDpyb290"}, 401),
        ({"Authorization": "Bearer x", "Host": "evil.example.com"}, 421),
        ({"Authorization": "Bearer x", "Origin": "http://evil.example.com"}, 403),
        ({"Authorization": "Bearer x", "Origin": "http://localhost"}, 403),
    ],
)
def test_requests_of_strangers_and_web_pages_are_refused(served: str, headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    assert httpx2.post(served, json=body, headers={**accepted, **headers}, verify=TLS).status_code == status
