"""`caraway drift`: how served features compare with a training set or earlier ones, and datasets with earlier rows."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.errors import InvalidInputError
from caraway.observations import monitoring
from caraway.observations.observation import Observation, rows_of, without


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
    out.print(table_of(monitoring.DRIFT, rows_of(monitoring.DRIFT, answer)))
    _show_distances(monitoring.FEATURE_DISTANCES, answer, every=every)


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
    out.print(table_of(without(monitoring.PROFILES, "finding"), rows_of(monitoring.PROFILES, answer)))
    out.print()
    out.print(table_of(monitoring.FIELD_DRIFT, rows_of(monitoring.FIELD_DRIFT, answer)))
    _show_distances(monitoring.FIELD_DISTANCES, answer, every=every)


def _show_distances(observation: Observation, answer: Mapping[str, Any], *, every: bool) -> None:
    shown = [row for row in rows_of(observation, answer) if every or row["drifted"]]
    if shown:
        out.print()
        out.print(table_of(observation, shown))
