"""`caraway expectations`: how many rows of datasets are as their owners expect."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.observations.monitoring import EXPECTATIONS, FAILURES
from caraway.observations.observation import rows_of, without


@command
def expectations(
    *,
    dataset: Annotated[str | None, typer.Option(help="Only the expectations of this dataset.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How many hours the series in --json has.")] = 24,
    samples: Annotated[int, typer.Option("--samples", "-n", min=0, max=20, help="The most failed rows of each.")] = 3,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show how many rows of datasets are as expected, and some that aren't.

    The last hour and the last day end with the newest row of a dataset, by event time.
    """
    params = {"dataset": dataset, "hours": str(hours), "samples": str(samples)}
    answer = ask("GET", "/expectations", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    found = rows_of(EXPECTATIONS, answer)
    if not found:
        out.print("No dataset of the branch has @expectations.", soft_wrap=True)
        return
    out.print(table_of(without(EXPECTATIONS, "since", "passed"), found))
    failed = rows_of(FAILURES, answer)
    if failed:
        out.print()
        out.print(table_of(FAILURES, failed))
