"""What the commands that talk to a server share: which server, which branch, how an answer is shown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from caraway.client.http import Connection
from caraway.client.response import BRANCH_HEADER
from caraway.config import load_settings
from caraway.errors import UnavailableError
from caraway.stack.folder import DataFolder
from caraway.stack.record import read_record

UrlOption = Annotated[
    str | None,
    typer.Option(envvar="CARAWAY_URL", help="The server; without it, that of the stack in the data folder."),
]
TokenOption = Annotated[str, typer.Option(envvar="CARAWAY_TOKEN", help="The token to show to the server.")]
BranchOption = Annotated[str, typer.Option("--branch", "-b", envvar="CARAWAY_BRANCH", help="The branch.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")]


def server_url(url: str | None, data: Path | None) -> str:
    """Return the address of the server that is meant.

    Raises:
        UnavailableError: None is named, and no stack runs in the data folder.
    """
    if url is not None:
        return url
    folder = load_settings(data).data_dir
    record = read_record(DataFolder(folder).record)
    found = None if record is None else record.urls.get("server")
    if found is None:
        raise UnavailableError(
            f"no stack runs in {folder}: start it with `caraway up`, name its folder with --data, or give --url"
        )
    return found


def ask(
    method: str,
    path: str,
    *,
    server: str,
    token: str,
    branch: str,
    params: Mapping[str, str] | None = None,
    body: object = None,
) -> Any:  # noqa: ANN401 (any JSON)
    """Make a request and return the JSON of the answer.

    Raises:
        RemoteError: The server refused.
        UnavailableError: It doesn't answer.
    """
    connection = Connection(server, token)
    try:
        return connection.request(method, path, {BRANCH_HEADER: branch}, params=params, body=body).json()
    finally:
        connection.close()


def show_json(answer: object) -> None:
    """Print an answer for programs."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2))
