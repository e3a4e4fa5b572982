"""The application: all commands, and the options that stand before a command."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typing_extensions import override

from caraway.apps.cli.commands import SECTIONS
from caraway.apps.cli.lazy import LazyGroup
from caraway.apps.cli.server_options import DataOption, TokenOption, UrlOption

# The options of most commands that may also stand before the command.
SHARED = ("url", "token", "branch", "data")


class Commands(LazyGroup):
    """The group of all commands of Caraway."""

    sections = SECTIONS

    @override
    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:  # type: ignore[override] # typer's is click's
        """Return the typed command, with the options that stand before it; what stands behind it counts more."""
        name, command, rest = super().resolve_command(ctx, args)
        given = [f"--{option}={ctx.params[option]}" for option in SHARED if ctx.params.get(option) is not None]
        # If the command is a group, as in `caraway --branch=b branch list`, the options belong to the command within
        # it, here `list`.
        words = 1 if hasattr(command, "commands") and rest else 0
        return name, command, [*rest[:words], *given, *rest[words:]]


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
    url: UrlOption = None,
    token: TokenOption = None,
    branch: Annotated[str | None, typer.Option("--branch", "-b", help="The branch.")] = None,
    data: DataOption = None,
) -> None:
    """Caraway, an open real-time feature platform. The options of a server stand before a command or behind it."""
