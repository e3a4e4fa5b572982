"""`caraway commit` and `caraway preview`."""

from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Annotated

import typer

import caraway
from caraway.apps.cli.definitions import find_definitions
from caraway.apps.cli.history import show_commit
from caraway.apps.cli.options import command
from caraway.apps.cli.places import placed
from caraway.apps.cli.remote import BranchOptions, JsonOption
from caraway.errors import CarawayError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The definitions to commit, and the bounds on the commit."""

    module: Annotated[str, typer.Argument(help="Definitions, a file or a module.", metavar="MODULE")]
    env: Annotated[str, typer.Option(help="Take only definitions for this environment.")] = ""
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Keep what isn't mentioned; else MODULE is all that the branch holds."),
    ] = False
    no_backfill: Annotated[bool, typer.Option("--no-backfill", help="Refuse if anything has to be computed anew.")] = (
        False
    )


@command
def commit(
    wanted: Wanted,
    message: Annotated[str, typer.Option("--message", "-m", help="A description of the commit.")],
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Make the definitions of a module those of a branch: all of them or, if anything is wrong, none (exit code 1)."""
    _send(wanted, message, server, preview=False, as_json=as_json)


@command
def preview(wanted: Wanted, server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show what a commit would do, and change nothing; exit code 1 if it would be refused."""
    _send(wanted, "preview", server, preview=True, as_json=as_json)


def _send(wanted: Wanted, message: str, server: BranchOptions, *, preview: bool, as_json: bool) -> None:
    found = find_definitions(wanted.module)
    server.announce()
    with ExitStack() as stack:
        # `client.commit` prints a summary. It is discarded here, since this command prints a summary of its own, or the
        # JSON.
        stack.enter_context(redirect_stdout(StringIO()))
        client = stack.enter_context(closing(caraway.Client(server.address.url, server.address.token, server.branch)))
        try:
            answer = client.commit(
                message,
                found.datasets,
                found.featuresets,
                preview=preview,
                env=wanted.env or None,
                incremental=wanted.incremental,
                backfill=not wanted.no_backfill,
            ).json()
        except CarawayError as error:
            error.args = (placed(str(error), found), *error.args[1:])
            raise
    show_commit(answer, as_json=as_json)
