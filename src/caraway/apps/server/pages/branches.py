"""The pages of branches and commits."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import form_of
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


async def diff(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the differences between two branches or commits, and how a commit can be previewed."""
    ends = given(request, "from").strip(), given(request, "to").strip()
    found = None
    if all(ends):
        found = await context.ask(request, "branch_diff", **{"from": ends[0], "to": ends[1]})
    return context.page(request, "diff.html", before=ends[0], after=ends[1], diff=found)


async def preview(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with what going back to a commit would do; nothing is done."""
    name = form_of(request.body, request.headers).get("name", "")
    found = await context.ask(request, "roll_back", query_string="preview=true", commit_id=name)
    return context.page(request, "preview.html", name=name, summary=found["summary"])
