"""The pages of branches and commits."""

from typing import Any

from caraway.server.http.messages import HttpResponse, Request
from caraway.server.pages.context import PageContext
from caraway.server.pages.parameters import given
from caraway.state.permissions import Mode

LISTED = 50


async def branches(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with all branches that the caller may look at, and the commits of the current one."""
    found = (await context.ask(request, "list_branches"))["branches"]
    log = await context.ask(request, "branch_log", limit=LISTED)
    return context.page(
        request,
        "branches.html",
        branches=[one for one in found if request.caller.may(Mode.READ_DEFINITION, one["name"])],
        commits=log["commits"],
    )


async def commit(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a commit: what it did, and what it changed since the one before it."""
    name = given(request, "name")
    log = (await context.ask(request, "branch_log", limit=10_000))["commits"]
    found = next((one for one in log if one["id"] == name), None)
    diff: Any = None
    if found is not None and found["parent"] is not None:
        diff = await context.ask_if_allowed(request, "branch_diff", **{"from": found["parent"], "to": name})
    return context.page(request, "commit.html", name=name, commit=found, diff=diff)
