"""`caraway mcp`: an MCP server, by which AI agents read what a Caraway server has."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.remote import BranchOptions

DEFAULT_PORT = 8180


@command
def mcp(
    *,
    server: BranchOptions,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, for agents elsewhere; each sends a token of its own.")
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on, with --http.")] = DEFAULT_PORT,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name and port by which agents reach --http, such as features.example.com:443."),
    ] = None,
) -> None:
    """Serve the catalog, lineage, rows and features to AI agents by the Model Context Protocol; it changes nothing.

    An agent's host starts it and talks to it over standard input and output; with --http it serves /mcp.
    """
    # The SDK takes long to import, and `caraway --help` imports this module.
    from caraway.apps.mcp.asking import Server  # noqa: PLC0415
    from caraway.apps.mcp.serving import http_app, mcp_server  # noqa: PLC0415

    address = server.address
    if not http:
        mcp_server(Server(url=address.url, branch=server.branch, token=address.token)).run("stdio")
        return
    import uvicorn  # noqa: PLC0415

    app = http_app(
        Server(url=address.url, branch=server.branch, token=None), host=host, allowed_hosts=allowed_host or ()
    )
    typer.echo(f"Serving MCP at http://{host}:{port}/mcp for {address.url}. Agents send tokens of Caraway.", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning")
