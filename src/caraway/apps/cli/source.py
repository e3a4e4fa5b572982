"""`caraway source`: the sources of a branch, and trials of them."""

from contextlib import closing
from typing import Annotated, Any

import typer
from rich.text import Text

import caraway
from caraway.apps.cli.definitions import find_definitions
from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.observations.observation import without
from caraway.observations.operating import SOURCES

source = typer.Typer(help="Sources: list them, and try one before or after its commit.", no_args_is_help=True)

# The most characters of a value in a table.
SHOWN = 40


@source.command("list")
@command
def list_sources(server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show the sources that the server reads, and how far they are."""
    found = ask("GET", "/status", server=server)["sources"]
    if as_json:
        show_json({"sources": found})
        return
    if found:
        out.print(table_of(without(SOURCES, "last row", "last answer"), found))
    else:
        out.print("The server reads no sources; rows may come from clients, by webhooks.")


@source.command("test")
@command
def try_source(
    name: Annotated[str, typer.Argument(help="A dataset, or a system such as a Kafka, by its name.", metavar="NAME")],
    *,
    module: Annotated[
        str | None, typer.Option("--module", "-m", help="Definitions that aren't committed yet, a file or a module.")
    ] = None,
    env: Annotated[str, typer.Option(help="With --module: take only the sources for this environment.")] = "",
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, max=100, help="The most rows of the sample.")] = 10,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Connect to a source and read a sample; show how its rows fit, and change nothing.

    The exit code is 1 if a source can't be read, or if rows of the sample would be refused.
    """
    datasets = () if module is None else find_definitions(module).datasets
    with closing(caraway.Client(server.address.url, server.address.token, server.branch)) as client:
        tried = client.try_sources(name, datasets, rows=rows, env=env or None)
    if as_json:
        show_json({"sources": tried})
    else:
        for each in tried:
            _show(each)
    if any(each["error"] or any(row["reasons"] for row in each["rows"]) for each in tried):
        raise typer.Exit(1)


def _show(tried: dict[str, Any]) -> None:
    rows = tried["rows"]
    out.print(f"{tried['source']} of {tried['dataset']}", markup=False, highlight=False, style="bold")
    if tried["error"]:
        out.print(f"can't be read: {tried['error']}", markup=False, soft_wrap=True, style="red")
        return
    accepted, refused = sum(row["accepted"] for row in rows), sum(bool(row["reasons"]) for row in rows)
    left_out = len(rows) - accepted - refused
    counts = f"{accepted} accepted, {refused} refused"
    if left_out:
        counts += f", {left_out} left out by where, since, until or sample"
    out.print(f"connected in {tried['seconds']:.1f} s; {len(rows)} rows of a sample: {counts}", markup=False)
    changes = [change for row in rows for change in row["changes"]]
    if changes:
        table = plain_table(*changes[0])
        for change in changes:
            table.add_row(*(Text(_text(value)) for value in change.values()))
        out.print(table)
    for row in rows:
        for reason in row["reasons"]:
            place = ", ".join(f"{key} {value}" for key, value in row["origin"].items())
            field = f"{reason['field']} " if reason["field"] else ""
            out.print(f"refused, {place}: {field}{reason['message']}", markup=False, soft_wrap=True, style="yellow")


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
