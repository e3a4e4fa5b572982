"""What the commands share: their consoles, the option for the data folder, how an error is shown."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from caraway.errors import CarawayError

# In a file or a pipe there is no width to keep to.
WIDE = 160

out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
err = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else WIDE)

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
