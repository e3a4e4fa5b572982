"""`caraway drift`: how served features compare with a training set or earlier ones, and datasets with earlier rows."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import cut, out, plain_table
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.errors import InvalidInputError

# The most characters of the frequent values of a field.
MAX_TOP = 60


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
    dataset: Annotated[str | None, typer.Option(help="The fields of this dataset, in place of features.")] = None,
    hours: Annotated[
        int, typer.Option(min=1, max=24 * 366, help="How many hours back features were served, or rows happened.")
    ] = 24,
    reference: Annotated[
        Reference | None,
        typer.Option(help="With what they are compared; by default the reference that was set, or the day before."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show the distances of features that haven't drifted.")] = False,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show which features have drifted from a training set or from what was served before, or the fields of a dataset.

    The rows of queries with log=true are profiled by the hour, and those of datasets with @meta(drift=...). A feature
    or a field has drifted if a distance reaches its threshold, and chance doesn't explain it.
    """
    if dataset is not None:
        if feature is not None:
            raise InvalidInputError("--feature and --dataset exclude each other")
        _of_dataset(dataset, hours, reference, server, every=every, as_json=as_json)
        return
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


def _of_dataset(
    dataset: str, hours: int, reference: Reference | None, server: BranchOptions, *, every: bool, as_json: bool
) -> None:
    params = {"hours": str(hours), "reference": None if reference is None else reference.value}
    answer = ask("GET", f"/drift/datasets/{quote(dataset, safe='')}", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    if not answer["fields"]:
        out.print(f"No rows of {escape(dataset)} have been profiled yet.", soft_wrap=True)
        return
    fields = [{**found, "feature": found["field"], "rows": found["profile"]["rows"]} for found in answer["fields"]]
    out.print(_profiles(fields))
    out.print()
    out.print(_features(fields, "field"))
    shown = [found for found in fields if every or found["drifted"]]
    if any(found["distances"] for found in shown):
        out.print()
        out.print(_distances(shown, "field", every=every))


def _profiles(fields: Iterable[Mapping[str, Any]]) -> Any:
    table = plain_table("field", "kind")
    for heading in ("missing", "distinct", "mean", "least", "median", "greatest"):
        table.add_column(heading, justify="right")
    table.add_column("most frequent")
    for found in fields:
        profile = found["profile"]
        table.add_row(
            escape(found["field"]),
            profile["kind"],
            f"{profile['nulls'] + profile['nans']:,}",
            f"{profile['distinct']:,}",
            *map(_number, (profile["mean"], profile["least"], profile["quantiles"].get("50%"), profile["greatest"])),
            escape(cut(", ".join(f"{one['value']} ({one['rows']:,})" for one in profile["top"][:3]), MAX_TOP)),
        )
    return table


def _number(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def _features(features: Iterable[Mapping[str, Any]], kind: str = "feature") -> Any:
    table = plain_table(kind, "state")
    table.add_column("rows", justify="right")
    table.add_column("reference")
    table.add_column("its rows", justify="right")
    for found in sorted(features, key=lambda found: (not found["drifted"], found["feature"])):
        state = "no reference" if found["reference"] is None else "drifted" if found["drifted"] else "as before"
        rows = f"{found['reference_rows']:,}" if found["reference"] else ""
        table.add_row(escape(found["feature"]), state, f"{found['rows']:,}", found["reference"] or "", rows)
    return table


def _distances(features: Iterable[Mapping[str, Any]], kind: str = "feature", *, every: bool) -> Any:
    table = plain_table(kind, "distance")
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
