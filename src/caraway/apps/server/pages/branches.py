"""The pages of branches and commits."""

from typing import Any

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import form_of
from caraway.errors import InvalidInputError
from caraway.state.permissions import Mode

LISTED = 50
# The changes of a branch that a page can make: the target of the API's endpoint, and the member of its body that names
# the commit or branch whose definitions are committed again.
CHANGES = {"roll_back": "commit_id", "promote": "source"}


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
    """Return the page with what a rollback or a promotion would do, which asks whether to do it; nothing is done."""
    return await _changed(context, request, preview=True)


async def change(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Go back to a commit, or promote a branch, and return the page with what that did."""
    return await _changed(context, request, preview=False)


async def _changed(context: PageContext, request: Request[Any, Any], *, preview: bool) -> HttpResponse:
    fields = form_of(request.body, request.headers)
    target, name = fields.get("target", ""), fields.get("name", "")
    if target not in CHANGES:
        raise InvalidInputError(f"target is {target[:40]!r}; one of these is expected: {', '.join(CHANGES)}")
    query_string = f"preview={str(preview).lower()}"
    found = await context.ask(request, target, query_string=query_string, **{CHANGES[target]: name})
    return context.page(
        request,
        "preview.html",
        target=target,
        name=name,
        summary=found["summary"],
        commit_id=found["commit_id"],
        preview=preview,
    )
