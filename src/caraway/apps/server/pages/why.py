"""The pages that explain why a feature has its value. The inputs are in forms only, and the address has the feature."""

from typing import Any

import orjson

from caraway.apps.server.console.explanations import shortened
from caraway.apps.server.console.rendering import link
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import LONGEST, given
from caraway.apps.server.pages.query import given_features
from caraway.apps.server.pages.session import UnreadableFieldError, form_of, json_of, redirect
from caraway.compute.why.model import why_from_json
from caraway.compute.why.showing import Line, shown_value, tree
from caraway.errors import CarawayError
from caraway.state.model import MAIN

# Seconds that a page waits for an explanation. The browser shows the previous page meanwhile.
WAIT_S = 15
# The most rows that an explanation lists, since a page has room for few.
LISTED = 20


async def why_form(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the form for a feature; or the explanation that was asked for."""
    query_id = given(request, "request_id")
    if query_id:
        return await _explanation(context, request, query_id)
    feature, text = given(request, "feature"), ""
    if feature in context.catalogue(request).features:
        example = dict.fromkeys(given_features(context, request, [feature]))
        text = orjson.dumps(example, option=orjson.OPT_INDENT_2).decode() if example else ""
    return _form(context, request, feature=feature, inputs=text, at="", as_known=False, message="")


async def ask_why(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Ask for an explanation, and go to its page."""
    fields = form_of(request.body, request.headers)
    feature, text = fields.get("feature", "").strip()[:LONGEST], fields.get("inputs", "").strip()
    at, as_known = fields.get("at", "").strip()[:LONGEST], fields.get("as_known") == "true"
    try:
        inputs = await json_of(request, text, "the inputs", empty={})
        asked: dict[str, Any] = {"feature": feature, "inputs": inputs, "at": at or None, "as_known": as_known}
        answer = await context.ask(request, "why", **asked, limit=LISTED, wait=0)
    except CarawayError as error:
        shown: dict[str, Any] = {"feature": feature, "inputs": text, "at": at, "as_known": as_known}
        status = 400 if isinstance(error, UnreadableFieldError) else 422
        return _form(context, request, **shown, message=str(error), status=status)
    branch = None if request.branch == MAIN else request.branch
    return redirect(link("/why", branch=branch, request_id=answer["request_id"]))


def _form(
    context: PageContext,
    request: Request[Any, Any],
    *,
    feature: str,
    inputs: str,
    at: str,
    as_known: bool,
    message: str,
    status: int = 200,
) -> HttpResponse:
    return context.page(
        request,
        "why.html",
        http_status=status,
        feature=feature,
        inputs=inputs,
        at=at,
        as_known=as_known,
        message=message,
    )


async def _explanation(context: PageContext, request: Request[Any, Any], query_id: str) -> HttpResponse:
    answer = await context.ask(request, "why_answer", request_id=query_id, wait=WAIT_S)
    found = None if answer["why"] is None else why_from_json(answer["why"])
    return context.page(
        request,
        "why_answer.html",
        request_id=answer["request_id"],
        state=answer["status"],
        error=answer["error"],
        why=found,
        value="" if found is None else shown_value(found.value),
        inputs=[] if found is None else [(name, shown_value(value)) for name, value in found.inputs.items()],
        # The tree begins with the check and the inputs. The page shows both at its top, so the steps begin behind them.
        steps=None if found is None else shortened(Line("", tree(found).below[2 if found.inputs else 1 :])),
    )
