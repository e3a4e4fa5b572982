"""The pages of dead letters, and their replay."""

from typing import Any

import orjson

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import given
from caraway.apps.server.pages.session import form_of, json_of
from caraway.errors import InvalidInputError

LISTED = 50


async def letters(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the newest dead letters."""
    dataset, source = given(request, "dataset"), given(request, "source")
    answer = await context.ask(
        request,
        "dead_letters",
        limit=LISTED,
        dataset=dataset or None,
        source=source or None,
        before=given(request, "before") or None,
    )
    # Dead letters that the caller may not see are skipped, so a page may have few rows although older ones follow.
    return context.page(
        request,
        "letters.html",
        letters=answer["dead_letters"],
        older=answer["next"],
        dataset=dataset,
        source=source,
    )


async def letter(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page of a dead letter."""
    return await _page(context, request, given(request, "name"), "")


async def replay(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Send the row of a dead letter again, as it is or as it was repaired in the form."""
    fields = form_of(request.body, request.headers)
    name, text = fields.get("name", ""), fields.get("row", "").strip()
    found = await context.ask(request, "dead_letter", name)
    row = await json_of(request, text, "the row")
    if row is not None and not isinstance(row, dict):
        raise InvalidInputError("the row has to be a JSON object")
    changed = row if row != found.get("row") else None
    done = await context.ask(request, "replay", name, row=changed)
    if done["already"]:
        said = "It was replayed before, so nothing was sent."
    else:
        said = f"It was sent to {done['dataset']}" + (f": {done['outcome']}." if done.get("outcome") else ".")
    return await _page(context, request, name, said)


async def _page(context: PageContext, request: Request[Any, Any], name: str, said: str) -> HttpResponse:
    found = await context.ask(request, "dead_letter", name)
    row = found.pop("row", None)
    reasons = found.pop("reason", None) or []
    pretty = orjson.dumps(row, option=orjson.OPT_INDENT_2).decode()
    known = {"id", "dataset", "replayed_at", "time"}
    return context.page(
        request,
        "letter.html",
        name=name,
        letter=found,
        origin=[(key, value) for key, value in found.items() if key not in known and value is not None],
        reasons=[reason for reason in reasons if isinstance(reason, dict)],
        row=pretty,
        is_object=isinstance(row, dict),
        said=said,
    )
