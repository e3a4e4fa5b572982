"""The page of the streaming jobs of a branch and the engines that run them."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.overview import wanted_jobs

# The most rows of the table.
LISTED = 200


async def jobs(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the streaming jobs of a branch, those that don't run first, and the engines."""
    status = await context.ask(request, "status")
    found = wanted_jobs(status, context.catalogue(request).datasets)
    return context.page(request, "jobs.html", jobs=found[:LISTED], found=len(found), engines=status["engines"])
