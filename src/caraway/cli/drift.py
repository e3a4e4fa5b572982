"""`caraway drift`: how features that were served compare with a training set, or with what was served before."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape

from caraway.cli.options import command
from caraway.cli.output import out, plain_table
from caraway.cli.remote import BranchOptions, JsonOption, ask, show_json


class Reference(StrEnum):
    """The profiles with which served features are compared."""

    TRAINING = "training"
    PREVIOUS = "previous"
    DAY = "day"
    WEEK = "week"


@command
def drift(
    *,
    feature: Annotated[str | None, typer.Option(help="Only this feature, or the features of this featureset.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How many hours back features were served.")] = 24,
    reference: Annotated[
        Reference | None,
        typer.Option(help="With what they are compared; by default the reference that was set, or the day before."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show the distances of features that haven't drifted.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show which features have drifted from a training set, or from what was served before.

    The rows of queries with log=true are profiled by the hour. A feature has drifted if a distance reaches its
    threshold, and chance doesn't explain it.
    """
    params = {"feature": feature, "hours": str(hours), "reference": None if reference is None else reference.value}
    answer = ask("GET", "/drift", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    if not answer["features"]:
        out.print(
            f"No features that were served in the last {hours} h have been profiled. This is done with rows of "
            "queries with log=true a minute or two after they were served, if the archive runs.",
            soft_wrap=True,
        )
        return
    out.print(_features(answer["features"]))
    shown = [found for found in answer["features"] if every or found["drifted"]]
    if shown:
        out.print()
        out.print(_distances(shown, every=every))


def _features(features: Iterable[Mapping[str, Any]]) -> Any:
    table = plain_table("feature", "state")
    table.add_column("rows", justify="right")
    table.add_column("reference")
    table.add_column("its rows", justify="right")
    for found in sorted(features, key=lambda found: (not found["drifted"], found["feature"])):
        state = "no reference" if found["reference"] is None else "drifted" if found["drifted"] else "as before"
        rows = f"{found['reference_rows']:,}" if found["reference"] else ""
        table.add_row(escape(found["feature"]), state, f"{found['rows']:,}", found["reference"] or "", rows)
    return table


def _distances(features: Iterable[Mapping[str, Any]], *, every: bool) -> Any:
    table = plain_table("feature", "distance")
    for heading in ("value", "at least", "threshold"):
        table.add_column(heading, justify="right")
    table.add_column("change")
    for found in features:
        for distance in found["distances"]:
            if every or distance["drifted"]:
                threshold = "never" if distance["threshold"] is None else f"{distance['threshold']:g}"
                cells = f"{distance['value']:.3g}", f"{distance['at_least']:.3g}", threshold
                table.add_row(escape(found["feature"]), distance["distance"], *cells, escape(distance["note"]))
    return table
