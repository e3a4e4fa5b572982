"""The shared part of commands that talk to a server: its options, requests and JSON output."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pkgutil import resolve_name
from typing import Annotated, Any

import msgspec
import typer

from caraway.apps.cli.connection import TIMEOUT_SECONDS, send
from caraway.apps.cli.logins import Login, Logins
from caraway.apps.cli.output import err
from caraway.apps.cli.server_options import DataOption, TokenOption, UrlOption
from caraway.client.discovery import TOKEN, TOKEN_VARIABLE, URL_VARIABLE, RunningStack, ServerAddress, find_server
from caraway.client.response import BRANCH_HEADER, refusal

OK = 200
# The status of an answer to a request without a token, or with one that isn't valid.
UNAUTHENTICATED = 401
MAIN = "main"

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
        found = find_server(self.url, self.token, self.data)
        # If nothing chose the server, no token of a sign-in is sent: another user of the machine may listen at the
        # default address, and would get the token.
        if self.token is None and not found.token and (self.names_a_server or found.data_dir is not None):
            found = replace(found, token=Logins().token(found.url, _renewed))
        if found.elsewhere:
            self._announce(found)
        return found

    @property
    def token_origin(self) -> str:
        """The place from which the shown token came, as a clause; empty if none was shown."""
        found = self.address
        if not found.token:
            return ""
        if self.token is not None:
            place = "the option --token"
        elif found.token == os.environ.get(TOKEN_VARIABLE):
            place = f"the variable {TOKEN_VARIABLE}"
        elif found.data_dir is not None and found.token == RunningStack(found.url, found.data_dir).token():
            place = f"the file {found.data_dir / TOKEN}"
        else:
            place = "`caraway login`"
        return f"the token that was shown came from {place}"

    @property
    def names_a_server(self) -> bool:
        """True if an option or the environment names a server, and no option a data folder."""
        return self.url is not None or (self.data is None and bool(os.environ.get(URL_VARIABLE)))

    def announce(self) -> None:
        """Print on the standard error which server a command changes, and which branch; each such command calls it."""
        if not self.address.elsewhere:
            self._announce(self.address)

    def _announce(self, found: ServerAddress) -> None:
        folder = f" (the stack in {found.data_dir})" if found.data_dir else ""
        err.print(f"→ {found.url}{folder}{self._about()}", markup=False, soft_wrap=True)

    def _about(self) -> str:
        return ""


@dataclass(frozen=True, kw_only=True)
class BranchOptions(ServerOptions):
    """The options that choose a server and a branch."""

    branch: BranchOption = MAIN

    def _about(self) -> str:
        return f", branch {self.branch}"


def _renewed(login: Login) -> Login:
    # A renewal imports libraries that take longer to import than most commands run, so only a renewal imports them.
    renewed: Login = resolve_name("caraway.apps.cli.login:renew")(login)
    return renewed


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
        raise refusal(
            response, f"{method} {path}", server.token_origin if response.status_code == UNAUTHENTICATED else ""
        )
    return response.json()


def show_json(answer: object) -> None:
    """Print an answer as JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
