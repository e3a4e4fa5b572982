"""`caraway secrets`: the platform's own store of secrets."""

import sys
from typing import Annotated

import typer
from rich.markup import escape

from caraway.apps.cli.lazy import LazyGroup, Listed, Section
from caraway.apps.cli.options import command
from caraway.apps.cli.output import err, out, plain_table
from caraway.apps.cli.remote import JsonOption, ServerOptions, ask, show_json
from caraway.graph.secrets.rules import checked_name, checked_value

NameArgument = Annotated[str, typer.Argument(help="The name of the secret.", metavar="NAME")]


class _Secrets(LazyGroup):
    """The commands for secrets: all but `rotate` talk to a server, and don't need the library of Postgres."""

    path = "caraway secrets"
    sections = (
        Section(
            "Commands",
            (
                Listed("list", "caraway.apps.cli.secrets:list_secrets", "Show names of secrets, without their values."),
                Listed("set", "caraway.apps.cli.secrets:set_secret", "Store a secret, or change it."),
                Listed("delete", "caraway.apps.cli.secrets:delete", "Delete a secret."),
                Listed(
                    "rotate", "caraway.apps.cli.secret_rotation:rotate", "Encrypt all secrets with a new key.", "server"
                ),
            ),
        ),
    )


secrets = typer.Typer(cls=_Secrets, help="Secrets that pipelines, extractors and connectors use.", no_args_is_help=True)


@secrets.callback()
def _group() -> None:
    """Secrets that pipelines, extractors and connectors use."""


@command
def list_secrets(server: ServerOptions, as_json: JsonOption = False) -> None:
    """Show the names of all secrets, when and by whom each was changed; their values are never shown."""
    answer = ask("GET", "/secrets", server=server)
    if as_json:
        show_json(answer)
        return
    table = plain_table("name", "changed", "by")
    for found in answer["secrets"]:
        table.add_row(escape(found["name"]), found["updated_at"], escape(found["updated_by"] or "anybody"))
    out.print(table if table.row_count else "There are no secrets.")


@command
def set_secret(name: NameArgument, server: ServerOptions) -> None:
    """Store a secret, or change it. Its value is read from the standard input, or asked for."""
    value = checked_value(_value(checked_name(name)))
    server.announce()
    ask("PATCH", f"/secret/{name}", server=server, body={"value": value})
    err.print(f"stored secret {name}", markup=False)


@command
def delete(name: NameArgument, server: ServerOptions) -> None:
    """Delete a secret."""
    server.announce()
    ask("DELETE", f"/secret/{checked_name(name)}", server=server, body={})
    err.print(f"deleted secret {name}", markup=False)


def _value(name: str) -> str:
    """Return a value from the standard input or a prompt; a command line would show it to other users."""
    if sys.stdin.isatty():
        found: str = typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
        return found
    return sys.stdin.read().removesuffix("\n")
