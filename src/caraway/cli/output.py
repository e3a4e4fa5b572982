"""What the commands share: their consoles, the option for the data folder, how an error is shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from caraway.errors import CarawayError

out = Console(highlight=False)
err = Console(highlight=False, stderr=True)

DataOption = Annotated[
    Path | None,
    typer.Option("--data", "-d", metavar="DIR", help="Data folder; ./caraway-data if CARAWAY_DATA_DIR is not set."),
]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show an error of ours as text and leave with exit code 1; any other one keeps its trace."""
    try:
        yield
    except CarawayError as error:
        err.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(1) from None
