"""The application: all commands, and the options that stand before a command."""

from importlib.metadata import version
from typing import Annotated

import typer

from caraway.cli.commands import SECTIONS
from caraway.cli.lazy import LazyGroup


class Commands(LazyGroup):
    """The group of all commands of Caraway."""

    sections = SECTIONS


app = typer.Typer(
    name="caraway",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Pages of help in colours need rich's Markdown, which takes longer to import than all the rest together.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"caraway {version('caraway')}")
        raise typer.Exit


@app.callback()
def caraway(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Caraway, an open real-time feature platform."""
