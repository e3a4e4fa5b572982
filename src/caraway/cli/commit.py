"""`caraway commit` and `caraway preview`."""

from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import KW_ONLY, dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

import caraway
from caraway.cli.definitions import find_definitions
from caraway.cli.output import DataOption, plain_errors
from caraway.cli.remote import BranchOption, JsonOption, TokenOption, UrlOption, server_of, show_json

ModuleArgument = Annotated[str, typer.Argument(help="Definitions, a file or a module.", metavar="MODULE")]
EnvOption = Annotated[str, typer.Option(help="Take only definitions for this environment.")]
IncrementalOption = Annotated[
    bool,
    typer.Option("--incremental", help="Keep what isn't mentioned; else MODULE is all that the branch holds."),
]
NoBackfillOption = Annotated[bool, typer.Option("--no-backfill", help="Refuse if anything has to be computed anew.")]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The definitions to commit, and how."""

    module: str
    message: str
    env: str
    _: KW_ONLY
    incremental: bool
    backfill: bool
    preview: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """The server and the branch to commit to."""

    url: str | None
    token: str | None
    branch: str
    data: Path | None


def commit(
    *,
    module: ModuleArgument,
    message: Annotated[str, typer.Option("--message", "-m", help="A description of the commit.")],
    branch: BranchOption = "main",
    env: EnvOption = "",
    incremental: IncrementalOption = False,
    no_backfill: NoBackfillOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the definitions of a module those of a branch: all of them or, if anything is wrong, none (exit code 1)."""
    wanted = _Wanted(module, message, env, incremental=incremental, backfill=not no_backfill, preview=False)
    _send(wanted, _Target(url, token, branch, data), as_json=as_json)


def preview(
    *,
    module: ModuleArgument,
    branch: BranchOption = "main",
    env: EnvOption = "",
    incremental: IncrementalOption = False,
    no_backfill: NoBackfillOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a commit would do, and change nothing; exit code 1 if it would be refused."""
    wanted = _Wanted(module, "preview", env, incremental=incremental, backfill=not no_backfill, preview=True)
    _send(wanted, _Target(url, token, branch, data), as_json=as_json)


def _send(wanted: _Wanted, target: _Target, *, as_json: bool) -> None:
    with plain_errors():
        found = find_definitions(wanted.module)
        address = server_of(target.url, target.token, target.data)
        with ExitStack() as stack:
            client = stack.enter_context(closing(caraway.Client(address.url, address.token, target.branch)))
            if as_json:
                # The client prints the summary, which would spoil the JSON.
                stack.enter_context(redirect_stdout(StringIO()))
            answer = client.commit(
                wanted.message,
                found.datasets,
                found.featuresets,
                preview=wanted.preview,
                env=wanted.env or None,
                incremental=wanted.incremental,
                backfill=wanted.backfill,
            ).json()
        if as_json:
            show_json(answer)
