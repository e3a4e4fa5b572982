"""The pages of what runs beside queries: streaming jobs, offline queries, the archive and the skew watch."""

from typing import Any
from urllib.parse import urlencode

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.overview import wanted_jobs
from caraway.apps.server.pages.parameters import given, whole
from caraway.apps.server.pages.session import form_of

# The rows of a table, and the values of the page about skew.
LISTED, SAMPLES = 200, 50
# The hours of the page about skew, those that it offers, and the greatest number.
HOURS, OFFERED, MAX_HOURS = 24, (1, 24, 168), 24 * 366
# The states of an offline query that isn't over.
UNDER_WAY = ("waiting", "running")


async def jobs(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the streaming jobs of a branch, those that don't run first, and the engines."""
    status = await context.ask(request, "status")
    found = wanted_jobs(status, context.catalogue(request).datasets)
    found.sort(
        key=lambda job: (job["state"] == "running", -(job["progress"].get("lag_seconds") or 0.0), job["dataset"])
    )
    return context.page(request, "jobs.html", jobs=found[:LISTED], found=len(found), engines=status["engines"])


async def offline(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the newest offline queries of a branch."""
    return await _offline(context, request, "")


async def cancel(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Cancel an offline query."""
    name = form_of(request.body, request.headers).get("name", "")
    found = await context.ask(request, "cancel_offline", query_string=urlencode({"request_id": name}))
    return await _offline(context, request, f"The query {found['request_id']} ends behind the part that it computes.")


async def _offline(context: PageContext, request: Request[Any, Any], said: str) -> HttpResponse:
    found = (await context.ask(request, "list_offline"))["queries"]
    return context.page(request, "offline.html", queries=found[:LISTED], under_way=UNDER_WAY, said=said)


async def archive(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the tables of the archive, those that are behind most first."""
    found = (await context.ask(request, "archive"))["tables"]
    found.sort(key=lambda table: (-(table["messages"] or 0), table["dataset"]))
    return context.page(request, "archive.html", tables=found[:LISTED], found=len(found))


async def skew(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the features that were served otherwise than they are when computed again."""
    hours, feature = whole(request, "hours", HOURS, MAX_HOURS), given(request, "feature")
    answer = await context.ask(request, "skew", hours=hours, samples=SAMPLES, feature=feature or None)
    found = answer["features"]
    found.sort(key=lambda one: (-(one["mismatched"] / one["checked"] if one["checked"] else 0.0), one["feature"]))
    return context.page(
        request,
        "skew.html",
        feature=feature,
        hours=hours,
        offered=OFFERED,
        features=found[:LISTED],
        found=len(found),
        samples=answer["samples"],
    )
