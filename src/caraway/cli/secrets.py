"""`caraway secrets`: the platform's own store of secrets."""

import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from caraway.cli.database import DatabaseOption, opened, operator
from caraway.cli.output import DataOption, err, out, plain_errors
from caraway.cli.remote import JsonOption, TokenOption, UrlOption, ask, server_url, show_json
from caraway.config import load_settings
from caraway.integrations.keyring import open_keyring
from caraway.state import Act, AuditLog, SecretStore
from caraway.state.secret_book import SecretBook, checked_name, checked_value

secrets = typer.Typer(help="Secrets that pipelines, extractors and connectors use.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Its name.", metavar="NAME")]


@secrets.command("list")
def list_secrets(
    url: UrlOption = None, token: TokenOption = "", data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show which secrets there are, without their values."""
    with plain_errors():
        answer = ask("GET", "/secrets", server=server_url(url, data), token=token, branch="main")
        if as_json:
            show_json(answer)
            return
        table = Table("name", "changed", "by", box=None, header_style="dim")
        for found in answer["secrets"]:
            table.add_row(escape(found["name"]), found["updated_at"], escape(found["updated_by"] or "anybody"))
        out.print(table if table.row_count else "There are no secrets.")


@secrets.command("set")
def set_secret(name: NameArgument, url: UrlOption = None, token: TokenOption = "", data: DataOption = None) -> None:
    """Keep a secret, or change it. Its value is read from the standard input, or asked for."""
    with plain_errors():
        value = checked_value(_value(checked_name(name)))
        ask("PATCH", f"/secret/{name}", server=server_url(url, data), token=token, branch="main", body={"value": value})
        err.print(f"kept secret {name}", markup=False)


@secrets.command("delete")
def delete(name: NameArgument, url: UrlOption = None, token: TokenOption = "", data: DataOption = None) -> None:
    """Forget a secret."""
    with plain_errors():
        ask(
            "DELETE", f"/secret/{checked_name(name)}", server=server_url(url, data), token=token, branch="main", body={}
        )
        err.print(f"forgot secret {name}", markup=False)


@secrets.command("rotate")
def rotate(database: DatabaseOption = None, data: DataOption = None) -> None:
    """Make a new key, and seal all secrets anew with it. The old one stays in the key file.

    Give the file to all machines of the deployment at once.
    """
    with plain_errors(), opened(database, data) as engine:
        audit = AuditLog(engine)
        number = audit.begin(Act(account=operator(), token_id="", action="rotate_secrets", branch=""))
        book = SecretBook(SecretStore(engine), open_keyring(load_settings(data).key_file))
        count = book.rotate()
        audit.end(number, "done")
        err.print(f"sealed {count} secrets with a new key", markup=False)


def _value(name: str) -> str:
    """Read a value, which stands on no command line: others could see it there."""
    if sys.stdin.isatty():
        found: str = typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
        return found
    return sys.stdin.read().removesuffix("\n")
