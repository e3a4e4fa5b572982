"""The options that choose a server. They stand apart, since the page of help imports them and little else."""

from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[
    Path | None,
    typer.Option("--data", "-d", metavar="DIR", help="Data folder; ./caraway-data if CARAWAY_DATA_DIR is not set."),
]

UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="The server; without it that of CARAWAY_URL, or the stack that runs on this machine."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="The token to show to the server; without it that of CARAWAY_TOKEN, which other users of this machine "
        "don't see, or of the stack.",
    ),
]
