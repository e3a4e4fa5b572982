"""`caraway ledger`: the actions that commits still wait for."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import JsonOption, ServerOptions, ask, show_json


@command
def ledger(
    server: ServerOptions,
    closed: Annotated[
        int, typer.Option(help="Also show this number of finished entries, newest first.", min=0, max=10_000)
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show which topics, jobs and indexes must still be made or removed, and why; exit code 1 if any must be made."""
    answer = ask("GET", "/ledger", server=server, params={"closed": str(closed)})
    if as_json:
        show_json(answer)
    else:
        table = plain_table("action", "asset", "asset is", "entry", "due", "attempts", "why")
        for entry in answer["entries"]:
            cells = [entry[name] for name in ("deed", "asset", "asset_state", "state", "due_at")]
            table.add_row(*cells, str(entry["attempts"]), entry["reason"])
        out.print(table if table.row_count else "Nothing is pending.")
    pending = [entry for entry in answer["entries"] if (entry["deed"], entry["state"]) == ("create", "open")]
    raise typer.Exit(1 if pending else 0)
