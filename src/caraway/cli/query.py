"""`caraway query` and `caraway lookup`: features and rows as they are served."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from caraway.cli.output import DataOption, plain_errors
from caraway.cli.remote import BranchOption, JsonOption, TokenOption, UrlOption, ask, server_of
from caraway.cli.rows import STANDARD_INPUT, Format, Row, of_options, read_rows
from caraway.cli.tables import Shown, ShownOption, show_columns
from caraway.errors import InvalidInputError

InputOption = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="ROWS", help="A file, - for the standard input, or JSON itself."),
]
FormatOption = Annotated[
    Format | None, typer.Option("--format", "-f", help="The format of ROWS; without it by the name of the file.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", help="The instant to ask about, such as 2026-01-31T12:00:00Z; without it, now.")
]


def query(
    outputs: Annotated[list[str], typer.Argument(help="Features or featuresets, by full name.", metavar="FEATURE")],
    *,
    rows: InputOption = None,
    form: FormatOption = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--with", "-w", metavar="FEATURE=VALUE", help="A value of the only row; one for each input."),
    ] = None,
    at: AtOption = None,
    workflow: Annotated[str, typer.Option(help="The name under which the server counts the query.")] = "",
    shown: ShownOption = Shown.TABLE,
    as_json: JsonOption = False,
    branch: BranchOption = "main",
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Compute features for rows of inputs, whose columns are features by full name, and print them row by row."""
    with plain_errors():
        asked = _asked(rows, form, given or [], "--with")
        body: dict[str, Any] = {"inputs": list(asked[0]), "outputs": outputs, "data": asked}
        if workflow:
            body["workflow"] = workflow
        if at is not None:
            body["timestamps"] = [at] * len(asked)
        answer = ask("POST", "/query", server=server_of(url, token, data), branch=branch, body=body)
        show_columns(answer, Shown.JSON if as_json else shown)


def lookup(
    dataset: Annotated[str, typer.Argument(help="The dataset.", metavar="DATASET")],
    *,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="COLUMN=VALUE", help="A part of the key; one for each key column."),
    ] = None,
    rows: InputOption = None,
    form: FormatOption = None,
    field: Annotated[list[str] | None, typer.Option(help="A column wanted; without it, all.")] = None,
    at: AtOption = None,
    shown: ShownOption = Shown.TABLE,
    as_json: JsonOption = False,
    branch: BranchOption = "main",
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Look up rows of a dataset by key; exit code 1 if one isn't found."""
    with plain_errors():
        asked = _asked(rows, form, key or [], "--key")
        body: dict[str, Any] = {"keys": asked}
        if field:
            body["fields"] = field
        if at is not None:
            body["timestamps"] = [at] * len(asked)
        path = f"/dataset/{quote(dataset, safe='')}/lookup"
        answer = ask("POST", path, server=server_of(url, token, data), branch=branch, body=body)
        # A column of the dataset may be called `found`, too; it then replaces the column that this command adds.
        keys = {name: [row.get(name) for row in asked] for name in asked[0]}
        show_columns({"found": answer["found"], **keys, **answer["data"]}, Shown.JSON if as_json else shown)
        raise typer.Exit(0 if all(answer["found"]) else 1)


def _asked(source: str | None, form: Format | None, given: list[str], option: str) -> list[Row]:
    if given and source is not None:
        raise InvalidInputError(f"{option} and --input can't both be given")
    found = [of_options(given, option)] if given else list(read_rows(source or STANDARD_INPUT, form))
    if not found:
        raise InvalidInputError(f"there is no row; give --input FILE, or {option} column=value")
    if any(row.keys() != found[0].keys() for row in found):
        raise InvalidInputError("all rows must have the same columns as the first one")
    return found
