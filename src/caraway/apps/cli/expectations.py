"""`caraway expectations`: how many rows of datasets are as their owners expect."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import cut, out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json

MAX_VALUES = 100
# The order of the rows: what needs somebody is on top.
ORDER = {"violated": 0, "ok": 1, "no_data": 2}


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
    found = sorted(answer["expectations"], key=lambda one: (ORDER[one["status"]], one["dataset"]))
    if not found:
        out.print("No dataset of the branch has @expectations.", soft_wrap=True)
        return
    out.print(_table(found))
    failed = [(one, row) for one in found for row in one["samples"] if one["status"] == "violated"]
    if failed:
        out.print()
        out.print(_samples(failed))


def _table(found: Iterable[Mapping[str, Any]]) -> Any:
    table = plain_table("dataset", "expectation", "status")
    for heading in ("mostly", "last hour", "last day", "rows", "failed"):
        table.add_column(heading, justify="right")
    for one in found:
        total = one["total"]
        table.add_row(
            escape(one["dataset"]),
            escape(one["expectation"].removeprefix("expect_")),
            one["status"],
            # A strict check refuses what fails, so there is no share of rows that may.
            "strict" if one.get("strict") else f"{one['mostly']:.2%}",
            _rate(one["last_hour"]),
            _rate(one["last_day"]),
            f"{total['evaluated']:,}",
            f"{total['failed']:,}",
        )
    return table


def _samples(failed: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Any:
    table = plain_table("event time", "dataset", "expectation", "values")
    for one, row in failed:
        shown = cut(json.dumps(row["values"], ensure_ascii=False, default=str), MAX_VALUES)
        cells = (row["at"], one["dataset"], one["expectation"].removeprefix("expect_"), shown)
        table.add_row(*map(escape, cells))
    return table


def _rate(counts: Mapping[str, Any]) -> str:
    return "" if counts["rate"] is None else f"{counts['rate']:.2%}"
