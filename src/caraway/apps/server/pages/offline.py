"""The page of offline queries, on which they can be cancelled."""

from typing import Any
from urllib.parse import urlencode

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.session import form_of

# The most rows of the table.
LISTED = 200
# The states of an offline query that isn't over.
UNDER_WAY = ("waiting", "running")


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
