"""`caraway freshness`: how old what queries read is, dataset by dataset."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json


@command
def freshness(*, server: BranchOptions, as_json: JsonOption = False) -> None:
    """Show how old what queries read is, for each dataset, and where the rows are that it lacks.

    Heartbeats measure this through each pipeline, also when no rows come.
    """
    answer = ask("GET", "/freshness", server=server)
    if as_json:
        show_json(answer)
        return
    if not answer["datasets"]:
        out.print("No dataset of this branch has an index that this server measures.", soft_wrap=True)
        return
    out.print(freshness_table(answer["datasets"]))


def freshness_table(datasets: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of datasets, the oldest first."""
    table = plain_table("dataset")
    for heading in ("age", "delay"):
        table.add_column(heading, justify="right")
    table.add_column("readable until")
    table.add_column("waits for")
    for found in sorted(datasets, key=lambda found: (-(found["seconds"] or 0.0), found["dataset"])):
        table.add_row(
            escape(found["dataset"]),
            spelled(found["seconds"]),
            spelled(found["delay_seconds"]),
            _time(found["served_until"]),
            escape(found["waits_for"]),
        )
    return table


def spelled(seconds: float | None) -> str:
    """Return a duration with about three digits; "?" if it isn't known."""
    if seconds is None:
        return "?"
    if seconds < 1.0:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _time(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
