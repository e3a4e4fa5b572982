"""`caraway secrets`: the platform's own store of secrets."""

import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from caraway.cli.lazy import LazyGroup, Listed, Section
from caraway.cli.output import DataOption, err, out, plain_errors
from caraway.cli.remote import JsonOption, TokenOption, UrlOption, ask, server_of, show_json
from caraway.secrets.rules import checked_name, checked_value

NameArgument = Annotated[str, typer.Argument(help="The name of the secret.", metavar="NAME")]


class _Secrets(LazyGroup):
    """The commands for secrets: all but `rotate` talk to a server, and don't need the library of Postgres."""

    path = "caraway secrets"
    sections = (
        Section(
            "Commands",
            (
                Listed("list", "caraway.cli.secrets:list_secrets", "Show names of secrets, without their values."),
                Listed("set", "caraway.cli.secrets:set_secret", "Store a secret, or change it."),
                Listed("delete", "caraway.cli.secrets:delete", "Delete a secret."),
                Listed("rotate", "caraway.cli.secret_rotation:rotate", "Encrypt all secrets with a new key.", "server"),
            ),
        ),
    )


secrets = typer.Typer(cls=_Secrets, help="Secrets that pipelines, extractors and connectors use.", no_args_is_help=True)


@secrets.callback()
def _group() -> None:
    """Secrets that pipelines, extractors and connectors use."""


def list_secrets(
    url: UrlOption = None, token: TokenOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show the names of all secrets, when and by whom each was changed; their values are never shown."""
    with plain_errors():
        answer = ask("GET", "/secrets", server=server_of(url, token, data), branch="main")
        if as_json:
            show_json(answer)
            return
        table = Table("name", "changed", "by", box=None, pad_edge=False, header_style="dim")
        for found in answer["secrets"]:
            table.add_row(escape(found["name"]), found["updated_at"], escape(found["updated_by"] or "anybody"))
        out.print(table if table.row_count else "There are no secrets.")


def set_secret(name: NameArgument, url: UrlOption = None, token: TokenOption = None, data: DataOption = None) -> None:
    """Store a secret, or change it. Its value is read from the standard input, or asked for."""
    with plain_errors():
        value = checked_value(_value(checked_name(name)))
        ask("PATCH", f"/secret/{name}", server=server_of(url, token, data), branch="main", body={"value": value})
        err.print(f"stored secret {name}", markup=False)


def delete(name: NameArgument, url: UrlOption = None, token: TokenOption = None, data: DataOption = None) -> None:
    """Delete a secret."""
    with plain_errors():
        ask("DELETE", f"/secret/{checked_name(name)}", server=server_of(url, token, data), branch="main", body={})
        err.print(f"deleted secret {name}", markup=False)


def _value(name: str) -> str:
    """Return a value from the standard input or a prompt; a command line would show it to other users."""
    if sys.stdin.isatty():
        found: str = typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
        return found
    return sys.stdin.read().removesuffix("\n")
