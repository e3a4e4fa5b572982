"""The MCP server: over standard input and output for one agent, or over HTTP for several, each with its own token."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.metadata import version
from typing import Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from caraway.apps.mcp.asking import Server, bearer_token
from caraway.apps.mcp.previews import preview_tool
from caraway.apps.mcp.tools import Tools
from caraway.errors import CarawayError

# The most bytes of a request's body over HTTP.
MAX_BODY: Final = 1_000_000
READ_ONLY: Final = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True)
# A preview loads a file, which runs its code, and the code may do anything that its user may. Agents let people approve
# tools with these hints.
RUNS_CODE: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)
INSTRUCTIONS: Final = """\
Caraway is a real-time feature platform. Events reach datasets through sources; pipelines compute datasets from
datasets; featuresets have features, which extractors compute from inputs and datasets. Full names of features are
Featureset.feature. Begin with search_catalog; describe and lineage explain a name; query_features computes values. The
tools change nothing in Caraway, and see what the token may see: a name that isn't found may be hidden. preview_commit
runs the code of the file that it is given, on this machine.
"""


def mcp_server(server: Server) -> MCPServer[Any]:
    """Return an MCP server whose tools ask a Caraway server.

    The tool that previews commits is offered only if the calls come without HTTP, from the agent that started the
    process (see `caraway.apps.mcp.previews`).
    """
    made: MCPServer[Any] = MCPServer("caraway", instructions=INSTRUCTIONS, version=version("caraway"))
    for tool in Tools(server).all():
        made.add_tool(_telling(tool), annotations=READ_ONLY, structured_output=False)
    if server.token is not None:
        preview = preview_tool(server, dict(os.environ))
        made.add_tool(_telling(preview), annotations=RUNS_CODE, structured_output=False)
    return made


def http_app(server: Server, *, host: str, allowed_hosts: Sequence[str] = ()) -> ASGIApp:
    """Return the ASGI application of an MCP server over HTTP, under `/mcp`.

    Requests must carry a token. Those whose header `Host` isn't allowed are refused, and those of web pages (with a
    header `Origin`), so that no page in a browser on this machine can reach it under another name.

    Args:
        server: The Caraway server; it has no token of its own.
        host: The address that the application listens on.
        allowed_hosts: Names under which clients reach it, each with its port or `:*`; by default those of loopback.
    """
    local = ("127.0.0.1:*", "localhost:*", "[::1]:*", f"{host}:*")
    app = mcp_server(server).streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=TransportSecuritySettings(allowed_hosts=[*(allowed_hosts or local)], allowed_origins=[]),
        host=host,
    )
    return _TokenNeeded(app)


class _TokenNeeded:
    """Refuses requests without a token, before anything is read of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            if not bearer_token(headers):
                refusal = JSONResponse(
                    {"error": "a token is needed: send the header Authorization: Bearer TOKEN with one of Caraway"},
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _telling(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool whose own errors reach the agent with their texts; others are hidden by the SDK, and logged."""

    @wraps(tool)
    def told(*args: Any, **kwargs: Mapping[str, Any]) -> Any:
        try:
            return tool(*args, **kwargs)
        except CarawayError as error:
            raise ToolError(str(error)) from error

    return told
