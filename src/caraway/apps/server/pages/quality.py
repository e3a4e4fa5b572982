"""The pages of expectations: which of them are violated, and how many rows of a dataset pass over time."""

from typing import Any

from caraway.apps.server.console.charts import chart_of
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given, whole
from caraway.observations.monitoring import EXPECTATIONS
from caraway.observations.observation import rows_of

# The most expectations in the list, and the most on the page of a dataset, where each one has a chart and a table.
ROWS, SECTIONS = 100, 20
# The hours of a chart by default, those that the page offers, and the greatest number.
HOURS, OFFERED, MAX_HOURS = 72, (24, 72, 168, 720), 24 * 366
# The page shows at most so many failed rows of each expectation, so many characters of a value, and so many rows of a
# table of counts.
SAMPLES, LONGEST, COUNTED = 5, 80, 24


async def quality(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the expectations of a branch, violated ones first; or with those of a dataset."""
    name, page = given(request, "dataset"), whole(request, "page", 1, 1_000_000)
    if name:
        return await _dataset(context, request, name, page)
    found = rows_of(EXPECTATIONS, await context.ask(request, "expectations", brief="true"))
    return context.page(
        request,
        "quality.html",
        expectations=found[(page - 1) * ROWS : page * ROWS],
        found=len(found),
        violated=sum(one["status"] == "violated" for one in found),
        number=page,
        pages=max(1, -(-len(found) // ROWS)),
    )


async def _dataset(context: PageContext, request: Request[Any, Any], name: str, page: int) -> HttpResponse:
    hours = whole(request, "hours", HOURS, MAX_HOURS)
    answer = await context.ask(request, "expectations", dataset=name, hours=hours, samples=SAMPLES)
    found = rows_of(EXPECTATIONS, answer)
    shown = [
        (one, chart_of(one["series"], one["mostly"]), *_samples(one["samples"]))
        for one in found[(page - 1) * SECTIONS : page * SECTIONS]
    ]
    return context.page(
        request,
        "quality_dataset.html",
        name=name,
        hours=hours,
        offered=OFFERED,
        counted=COUNTED,
        expectations=shown,
        number=page,
        pages=max(1, -(-len(found) // SECTIONS)),
    )


def _samples(samples: Any) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the names of the columns of some rows, and their times with their values."""
    names = list(dict.fromkeys(name for sample in samples for name in sample["values"]))
    return names, [(sample["at"], [_short(sample["values"].get(name)) for name in names]) for sample in samples]


def _short(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
