"""The page of the archive's tables."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.observations.observation import rows_of
from caraway.observations.operating import ARCHIVE

# The most rows of the table.
LISTED = 200


async def archive(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the tables of the archive, those that are behind most first."""
    found = rows_of(ARCHIVE, await context.ask(request, "archive"))
    return context.page(request, "archive.html", tables=found[:LISTED], found=len(found))
