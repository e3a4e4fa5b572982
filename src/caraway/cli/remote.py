"""The shared part of commands that talk to a server: its options, requests and JSON output."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from caraway.cli.connection import send
from caraway.client.discovery import ServerAddress, find_server
from caraway.client.response import BRANCH_HEADER, refusal

OK = 200

UrlOption = Annotated[
    str | None,
    typer.Option(help="The server; without it that of CARAWAY_URL, or the stack that runs on this machine."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(help="The token to show to the server; without it that of CARAWAY_TOKEN, or of the stack."),
]
BranchOption = Annotated[str, typer.Option("--branch", "-b", envvar="CARAWAY_BRANCH", help="The branch.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")]


def server_of(url: str | None, token: str | None, data: Path | None) -> ServerAddress:
    """Return the server that the options of a command mean, and the token for it.

    Raises:
        UnavailableError: A data folder is given, and no stack runs in it.
        InvalidInputError: Several stacks run on this machine, and no option chooses one.
    """
    return find_server(url, token, data)


def ask(
    method: str,
    path: str,
    *,
    server: ServerAddress,
    branch: str,
    params: Mapping[str, str] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    accepted: Collection[int] = (),
) -> Any:
    """Send a request and return the JSON of the answer; a status in `accepted` isn't an error if the answer has counts.

    Raises:
        RemoteError: The server refused the request.
        UnavailableError: The server doesn't answer.
    """
    sent = {BRANCH_HEADER: branch, **(headers or {})}
    response = send(method, path, server, headers=sent, params=params, body=body)
    if response.status_code != OK and not (response.status_code in accepted and "accepted" in response.json()):
        raise refusal(response, f"{method} {path}")
    return response.json()


def show_json(answer: object) -> None:
    """Print an answer as JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
