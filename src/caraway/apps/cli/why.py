"""`caraway why`: the events and versions from which a feature's value is computed."""

from typing import Annotated, Any

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.remote import BranchOptions, JsonOption, ask, show_json
from caraway.apps.cli.rows import WithOption, of_options
from caraway.compute.why.model import LISTED, MAX_LISTED, why_from_json
from caraway.compute.why.waiting import TIMEOUT_S, awaited


@command
def why(
    feature: Annotated[str, typer.Argument(help="The feature, as Featureset.feature.", metavar="FEATURE")],
    *,
    given: WithOption = None,
    at: Annotated[str | None, typer.Option("--at", help="The instant to explain; without it, now.")] = None,
    as_known: Annotated[bool, typer.Option("--as-known", help="Only what had been ingested by then.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="How many rows come before the listed ones.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, max=MAX_LISTED, help="The most rows to list.")] = LISTED,
    sample: Annotated[bool, typer.Option("--sample", help="List a sample, spread evenly over all rows.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the explanation.")] = TIMEOUT_S,
    server: BranchOptions,
    as_json: JsonOption = False,
) -> None:
    """Explain the value of a feature: the events and versions from which it is computed, and what let them in.

    Inputs are given by --with, each as the full name of a feature and its value.
    """
    inputs = of_options(given) if given else {}
    body: dict[str, Any] = {
        "feature": feature,
        "inputs": inputs,
        "at": at,
        "as_known": as_known,
        "offset": offset,
        "limit": limit,
        "sample": sample,
    }
    found = awaited(
        ask("POST", "/why", server=server, body=body),
        lambda request_id: ask("GET", "/why", server=server, params={"request_id": request_id}),
        timeout,
    )
    if as_json:
        show_json(found)
        return
    out.print(str(why_from_json(found)), markup=False, highlight=False, soft_wrap=True)
