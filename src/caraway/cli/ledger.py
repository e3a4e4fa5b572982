"""`caraway ledger`: the actions that commits still wait for."""

from typing import Annotated

import typer
from rich.table import Table

from caraway.cli.output import DataOption, out, plain_errors
from caraway.cli.remote import JsonOption, TokenOption, UrlOption, ask, server_of, show_json


def ledger(
    closed: Annotated[
        int, typer.Option(help="Also show so many finished entries, newest first.", min=0, max=10_000)
    ] = 0,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which topics, jobs and indexes must still be made or removed, and why; exit code 1 if any must be made."""
    with plain_errors():
        server = server_of(url, token, data)
        answer = ask("GET", "/ledger", server=server, branch="main", params={"closed": str(closed)})
        if as_json:
            show_json(answer)
        else:
            table = Table(
                "action",
                "asset",
                "asset is",
                "entry",
                "due",
                "attempts",
                "why",
                box=None,
                pad_edge=False,
                header_style="dim",
            )
            for entry in answer["entries"]:
                cells = [entry[name] for name in ("deed", "asset", "asset_state", "state", "due_at")]
                table.add_row(*cells, str(entry["attempts"]), entry["reason"])
            out.print(table if table.row_count else "Nothing is pending.")
        pending = [entry for entry in answer["entries"] if (entry["deed"], entry["state"]) == ("create", "open")]
        raise typer.Exit(1 if pending else 0)
