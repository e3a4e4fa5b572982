"""Show how a stack starts: a live table on a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from caraway.apps.cli.colours import COLOURS
from caraway.apps.cli.output import out
from caraway.apps.stack.stack import Progress
from caraway.process.children.part import PartState, PartStatus

QUIET_SECONDS = 3.0


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show the progress of a stack's start until the block ends; yield the function that takes each report."""
    began = time.monotonic()
    if not out.is_terminal:
        yield _line_writer(began)
        return
    with Live(console=out, transient=True, refresh_per_second=8) as live:

        def draw(text: str, parts: Sequence[PartStatus]) -> None:
            live.update(_picture(text, parts))

        yield draw


def _line_writer(began: float) -> Progress:
    written_at = -math.inf

    def write(text: str, parts: Sequence[PartStatus]) -> None:
        nonlocal written_at
        now = time.monotonic()
        # There are no parts while the Java libraries are fetched. A line for each of a hundred files would be too much.
        if parts or now - written_at > QUIET_SECONDS:
            written_at = now
            out.print(f"{now - began:6.1f} s  {text}", markup=False, soft_wrap=True)

    return write


def state_text(state: PartState) -> Text:
    """Return a state in its colour."""
    return Text(str(state), style=COLOURS.get(state, "cyan"))


def _picture(text: str, parts: Sequence[PartStatus]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for part in parts:
        settled = part.state in {PartState.RUNNING, PartState.STOPPED}
        mark: RenderableType = Text("✓", style="green") if settled else Spinner("dots")
        table.add_row(mark, part.name, state_text(part.state), Text(part.message.split("\n", 1)[0], style="dim"))
    return Group(Text(text.split("\n", 1)[0], style="dim"), table)
