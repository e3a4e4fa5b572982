"""`caraway skew`: how features that were served compare with the same features computed again."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out, table_of
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.observations.monitoring import SKEW, SKEW_SAMPLES
from caraway.observations.observation import rows_of

# The meaning of each reason, and the remedy.
REASONS: Mapping[str, str] = {
    "late data": "records came after the feature was served; a training set has them, unless it is as_known",
    "not yet indexed": "records had been accepted, but weren't in the index yet: see `caraway status` for lags",
    "non-deterministic extractor": "an extractor reads a clock or draws numbers; use its argument ts, or log the value",
    "unknown": "none of these: perhaps an extractor mixes rows, a secret changed, or a key was erased",
    "changed definition": "the topic of the commit that served it is removed, so it can't be compared",
    "no offline index": 'a dataset has no history; declare @index(offline="forever")',
    "too much history": "the records of a dataset need more memory than skew.memory_mb",
    "recomputation failed": "the features of the row can't be computed again; the sample has the error",
}


@command
def skew(
    *,
    feature: Annotated[str | None, typer.Option(help="Only this feature, or the features of this featureset.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How many hours back features were served.")] = 24,
    samples: Annotated[int, typer.Option("--samples", "-n", min=0, max=500, help="The most values to show.")] = 10,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Show which features differ from what was served when they are computed again, and why.

    A sample of the rows of queries with log=true is computed again from the archive, as of the time of each row.
    """
    params = {"feature": feature, "hours": str(hours), "samples": str(samples)}
    answer = ask("GET", "/skew", server=server, params=params)
    if as_json:
        show_json(answer)
        return
    if not answer["features"]:
        out.print(
            f"No features that were served in the last {hours} h have been computed again. This is done with rows of "
            "queries with log=true some minutes after they were served, if the archive runs.",
            soft_wrap=True,
        )
        return
    out.print(table_of(SKEW, rows_of(SKEW, answer)))
    if answer["samples"]:
        out.print()
        out.print(table_of(SKEW_SAMPLES, answer["samples"]))
    _explain(answer["features"])


def _explain(features: Iterable[Mapping[str, Any]]) -> None:
    totals: Counter[str] = Counter()
    for found in features:
        totals.update(found["reasons"])
        totals.update(found["unchecked"])
    if totals:
        out.print()
    for reason, told in REASONS.items():
        if totals[reason]:
            out.print(f"{reason}: {told}", markup=False, soft_wrap=True)
