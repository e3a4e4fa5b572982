"""The consoles to which commands print, their tables, and the printing of errors."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import typer
from rich.console import Console, OverflowMethod
from rich.table import Table
from rich.text import Text

from caraway.errors import CarawayError
from caraway.observations.figures import UNKNOWN
from caraway.observations.observation import Observation, Row, text_of

# The characters of a line of output that goes into a file or a pipe, where no terminal limits the width.
WIDE = 160
# The colours of cells by their tones.
COLOURS = {"bad": "red", "good": "green", "waits": "yellow", "": ""}

out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
err = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else WIDE)


def plain_table(*headings: str) -> Table:
    """Return an empty table with a heading for each column, in the style of all commands."""
    return Table(*headings, box=None, pad_edge=False, header_style="dim")


def table_of(observation: Observation, rows: Iterable[Row]) -> Table:
    """Return rows of an observation as a table; times are those of this machine's zone, and unknown cells are empty."""
    table, now = plain_table(), datetime.now(UTC)
    for column in observation.columns:
        # Identifiers are shown whole, so that they can be copied.
        overflow: OverflowMethod = "fold" if column.is_code else "ellipsis"
        table.add_column(column.name, justify="right" if column.is_figure else "left", overflow=overflow)
    for row in rows:
        cells = ((text_of(column, row, zone=None, now=now), column.tone(row)) for column in observation.columns)
        table.add_row(*(Text("" if text == UNKNOWN else text, style=COLOURS[tone]) for text, tone in cells))
    return table


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error of Caraway as text and exit with code 1; any other error keeps its traceback."""
    try:
        yield
    except CarawayError as error:
        err.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(1) from None
