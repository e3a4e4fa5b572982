"""`caraway demo`: the steps, in order."""

import os
from pathlib import Path
from typing import Annotated

import typer

from caraway.apps.cli.output import out, plain_errors
from caraway.apps.cli.server_options import DataOption
from caraway.apps.demo.embedded import data_folder, running_stack
from caraway.apps.demo.example import load_example
from caraway.apps.demo.steps import Demo, check, commit, measure, replay_and_watch


def demo(
    *,
    data: DataOption = None,
    url: Annotated[str, typer.Option(help="A server that runs already; without it a stack is started.")] = "",
    months: Annotated[int, typer.Option(min=1, max=12, help="Months of 2013 to replay.")] = 1,
    days: Annotated[int, typer.Option(min=1, max=31, help="Days of each month.")] = 31,
    flights: Annotated[int, typer.Option(min=1, help="Flights whose features are compared.")] = 2000,
    speed: Annotated[float, typer.Option(min=0, help="Times real time; 0: as fast as it goes.")] = 0.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="One day and 100 flights, and nothing is measured: shows that all works.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder if it is a temporary one.")] = False,
) -> None:
    """Replay a month of real flights through the whole stack, and check every value that comes out."""
    with plain_errors():
        if quick:
            months, days, flights = 1, 1, 100
        example = load_example()
        tables = example.tables(months=months, days=days)
        if url:
            _run(Demo(flights=example, url=url, tables=tables, speed=speed, checked=flights), measured=not quick)
            return
        with data_folder(data, keep=keep) as folder, running_stack(folder) as started:
            _run(Demo(flights=example, url=started, tables=tables, speed=speed, checked=flights), measured=not quick)
            _suggest(folder, kept=keep or data is not None)


def _run(run: Demo, *, measured: bool) -> None:
    commit(run)
    replay_and_watch(run)
    agreement = check(run)
    if agreement.disagreements:
        raise typer.Exit(1)
    if measured:
        measure(run)


def _suggest(folder: Path, *, kept: bool) -> None:
    out.rule("What to try next", align="left")
    # `./run` of a clone sets this variable, since a clone has no `caraway` on the path.
    command = os.environ.get("CARAWAY_COMMAND", "caraway")
    if kept:
        out.print(f"{command} up --data {folder}          the same stack with all these flights again", soft_wrap=True)
    else:
        out.print(f"{command} demo --data ./flights      keeps the data; then: {command} up --data ./flights")
    out.print(f"{command} demo --months 3            more flights")
    out.print("examples/flights/definitions.py    how little code all this is; change a feature and commit it")
    out.print("bench/freshness.py, bench/ingest.py    the figures by themselves")
