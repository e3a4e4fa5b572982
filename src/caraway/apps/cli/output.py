"""The consoles to which commands print, their tables, and the printing of errors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from caraway.errors import CarawayError

# The characters of a line of output that goes into a file or a pipe, where no terminal limits the width.
WIDE = 160
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")

out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
err = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else WIDE)


def cut(text: str, characters: int) -> str:
    """Return a text for a table: whole, or its first `characters` with an ellipsis."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def print_bytes(found: float | None) -> str:
    """Return a number of bytes for people; nothing if it isn't known."""
    if found is None:
        return ""
    value, unit = float(found), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def plain_table(*headings: str) -> Table:
    """Return an empty table with a heading for each column, in the style of all commands."""
    return Table(*headings, box=None, pad_edge=False, header_style="dim")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error of Caraway as text and exit with code 1; any other error keeps its traceback."""
    try:
        yield
    except CarawayError as error:
        err.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(1) from None
