"""The shared part of commands that talk to a server: its options, requests and JSON output."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import typer

from caraway.cli.connection import TIMEOUT_SECONDS, send
from caraway.cli.options import DataOption
from caraway.client.discovery import ServerAddress, find_server
from caraway.client.response import BRANCH_HEADER, refusal

OK = 200
MAIN = "main"

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


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options that choose a server, for commands whose requests are about no single branch."""

    branch: str = MAIN
    url: UrlOption = None
    token: TokenOption = None
    data: DataOption = None

    @cached_property
    def address(self) -> ServerAddress:
        """The server, and the token for it.

        Raises `UnavailableError` if no stack runs in the given data folder, and `InvalidInputError` if several stacks
        run on this machine and no option chooses one.
        """
        return find_server(self.url, self.token, self.data)


@dataclass(frozen=True, kw_only=True)
class BranchOptions(ServerOptions):
    """The options that choose a server and a branch."""

    branch: BranchOption = MAIN


def ask(
    method: str,
    path: str,
    *,
    server: ServerOptions,
    branch: str | None = None,
    params: Mapping[str, str | None] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    accepted: Collection[int] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Any:
    """Send a request about `branch`, by default that of the options, and return the JSON of the answer.

    Parameters that are None aren't sent. A status in `accepted` isn't an error if the answer counts accepted rows.

    Raises:
        RemoteError: The server refused the request.
        UnavailableError: The server doesn't answer.
    """
    sent = {BRANCH_HEADER: branch or server.branch, **(headers or {})}
    given = {name: value for name, value in (params or {}).items() if value is not None}
    response = send(
        method, path, server.address, headers=sent, params=given, body=body, timeout_seconds=timeout_seconds
    )
    if response.status_code != OK and not (response.status_code in accepted and "accepted" in response.json()):
        raise refusal(response, f"{method} {path}")
    return response.json()


def show_json(answer: object) -> None:
    """Print an answer as JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
