"""`caraway dead-letters`: rows that an endpoint refused or at which a pipeline failed."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.cli.options import command
from caraway.cli.output import err, out, plain_table
from caraway.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.errors import InvalidInputError

dead_letters = typer.Typer(
    help="Rows that an endpoint refused, and rows at which a step of a pipeline failed.", no_args_is_help=True
)

IdArgument = Annotated[str, typer.Argument(help="Its id, as `caraway dead-letters list` shows it.", metavar="ID")]


@dead_letters.command("list")
@command
def list_letters(
    *,
    dataset: Annotated[str | None, typer.Option(help="Only those of this dataset.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Only those of this webhook or other system, or of one source as listed.")
    ] = None,
    since: Annotated[datetime | None, typer.Option(help="Only those that were written at this time or later.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="The greatest number to show.")] = 50,
    before: Annotated[
        str | None, typer.Option(help="Show older ones: the value at the end of an earlier list.")
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show dead letters, newest first, with the reason of each."""
    params = {"limit": str(limit), "dataset": dataset, "source": source, "before": before}
    if since is not None:
        params["since"] = (since if since.tzinfo else since.replace(tzinfo=UTC)).isoformat()
    answer = ask("GET", "/dead_letters", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    table = plain_table("id", "at", "dataset", "from", "replayed", "reason")
    for found in answer["dead_letters"]:
        again = (found["replayed_at"] or ("" if found["replayable"] else "can't be"))[:19]
        cells = (found["id"], found["at"][:19], found["dataset"], found["from"], again, found["reason"])
        table.add_row(*map(escape, cells))
    out.print(table if table.row_count else "There are no dead letters.")
    if answer["next"] is not None:
        err.print(f"older ones: --before {answer['next']}", markup=False)


@dead_letters.command("show")
@command
def show(
    letter: IdArgument,
    *,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter: its origin, the reason, and its row."""
    path = f"/dead_letters/{quote(letter, safe='')}"
    answer = ask("GET", path, server=server)
    if as_json:
        show_json(answer)
        return
    reasons = answer.pop("reason", None) or []
    for name, value in answer.items():
        if name != "row" and value is not None:
            out.print(f"{name}: {value}", markup=False, soft_wrap=True)
    for reason in reasons:
        field = f"{reason['field']} " if reason.get("field") else ""
        out.print(f"reason: {field}{reason.get('message', '')}", markup=False, soft_wrap=True)
        if reason.get("traceback"):
            out.print(reason["traceback"].rstrip("\n"), markup=False, soft_wrap=True)
    out.print("row:")
    show_json(answer.get("row"))


@dead_letters.command("replay")
@command
def replay(
    letters: Annotated[list[str], typer.Argument(help="Ids, as `caraway dead-letters list` shows them.", metavar="ID")],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=VALUE",
            help="Repair a column of the row first: JSON, or else text. Without =VALUE the column is removed.",
        ),
    ] = None,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Send the rows of dead letters again to the datasets that refused them, once: as they are, or repaired.

    A change that a sink's system refused is sent again to it, if no later change of its row counts.

    As they are, they fit after the dataset was changed. A replay that would be refused again changes nothing.
    """
    server.announce()
    answers = []
    for letter in letters:
        path = f"/dead_letters/{quote(letter, safe='')}"
        body = {"row": _repaired(ask("GET", path, server=server).get("row"), changes)} if changes else {}
        answers.append(ask("POST", f"{path}/replay", server=server, body=body))
        if not as_json:
            done = answers[-1].get("outcome") or ("was replayed before" if answers[-1]["already"] else "replayed")
            out.print(f"{letter}: {done}, dataset {answers[-1]['dataset']}", markup=False)
    if as_json:
        show_json({"replays": answers})


def _repaired(row: object, changes: Iterable[str]) -> dict[str, object]:
    """Return a row with changed columns."""
    if not isinstance(row, dict):
        raise InvalidInputError(
            "the dead letter has only the head of its row, or a row that is no object, so no column can be set; "
            'send the whole row: POST /api/v1/dead_letters/ID/replay with {"row": {...}}'
        )
    repaired = dict(row)
    for change in changes:
        name, separator, text = change.partition("=")
        if not separator:
            repaired.pop(name, None)
            continue
        try:
            repaired[name] = json.loads(text)
        except json.JSONDecodeError:
            repaired[name] = text
    return repaired
