"""`caraway query` and `caraway lookup`: features and rows as they are served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask
from caraway.apps.cli.rows import STANDARD_INPUT, Format, InputOption, Row, WithOption, of_options, read_rows
from caraway.apps.cli.tables import Shown, show_columns
from caraway.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The options for the rows that are asked about, and for the form of the answer."""

    rows: InputOption = None
    form: Annotated[
        Format | None, typer.Option("--format", "-f", help="The format of ROWS; without it by the name of the file.")
    ] = None
    at: Annotated[
        str | None,
        typer.Option("--at", help="The instant to ask about, such as 2026-01-31T12:00:00Z; without it, now."),
    ] = None
    output: Annotated[Shown, typer.Option("--output", "-o", help="How the answer is shown.", show_choices=True)] = (
        Shown.TABLE
    )
    as_json: JsonOption = False

    def read(self, given: list[str] | None) -> list[Row]:
        """Return the rows, which are read unless the values of a single row are given by `--with`.

        Raises `InvalidInputError` if there is no row, or a row has other columns than the first one.
        """
        if given and self.rows is not None:
            raise InvalidInputError("--with and --input can't both be given")
        found = [of_options(given)] if given else list(read_rows(self.rows or STANDARD_INPUT, self.form))
        if not found:
            raise InvalidInputError("there is no row; give --input FILE, or --with name=value")
        if any(row.keys() != found[0].keys() for row in found):
            raise InvalidInputError("all rows must have the same columns as the first one")
        return found

    def timestamps(self, rows: list[Row]) -> dict[str, list[str]]:
        """Return the member of a request that names the instant of each row; none without `--at`."""
        return {} if self.at is None else {"timestamps": [self.at] * len(rows)}

    def show(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Print the columns of an answer."""
        show_columns(columns, Shown.JSON if self.as_json else self.output)


@command
def query(
    outputs: Annotated[list[str], typer.Argument(help="Features or featuresets, by full name.", metavar="FEATURE")],
    asked: Rows,
    server: BranchOptions,
    given: WithOption = None,
    workflow: Annotated[str, typer.Option(help="The name under which the server counts the query.")] = "",
) -> None:
    """Compute features for rows of inputs, whose columns are features by full name, and print them row by row."""
    rows = asked.read(given)
    body = {"inputs": list(rows[0]), "outputs": outputs, "data": rows, **asked.timestamps(rows)}
    if workflow:
        body["workflow"] = workflow
    asked.show(ask("POST", "/query", server=server, body=body))


@command
def lookup(
    dataset: Annotated[str, typer.Argument(help="The dataset.", metavar="DATASET")],
    asked: Rows,
    server: BranchOptions,
    given: WithOption = None,
    field: Annotated[list[str] | None, typer.Option(help="A column wanted; without it, all.")] = None,
) -> None:
    """Look up rows of a dataset by key; exit code 1 if one isn't found."""
    rows = asked.read(given)
    body = {"keys": rows, **asked.timestamps(rows), **({"fields": field} if field else {})}
    answer = ask("POST", f"/dataset/{quote(dataset, safe='')}/lookup", server=server, body=body)
    # If the dataset has a column `found` as well, that column replaces the one that this command adds.
    keys = {name: [row.get(name) for row in rows] for name in rows[0]}
    asked.show({"found": answer["found"], **keys, **answer["data"]})
    raise typer.Exit(0 if all(answer["found"]) else 1)
