"""The page to try a query. Its address has the features; their values are in the form only, as they may be private."""

import time
from typing import Any

import orjson

from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.apps.server.pages.context import PageContext
from caraway.apps.server.pages.parameters import LONGEST, given
from caraway.apps.server.pages.session import UnreadableFieldError, form_of, json_of
from caraway.errors import CarawayError

# The most rows of the table of results, and the most featuresets for which the empty form offers to fill it.
ROWS, EXAMPLES = 20, 20


async def query_form(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with an empty form, or one for the features in the address."""
    outputs, inputs = given(request, "outputs"), given(request, "inputs")
    if outputs and not inputs:
        inputs = ", ".join(given_features(context, request, _names(outputs)))
    example = {name: [None] for name in _names(inputs)}
    rows = orjson.dumps(example, option=orjson.OPT_INDENT_2).decode() if example else ""
    # A featureset without an extractor computes nothing: a query can't want its features.
    known = () if outputs else context.catalogue(request).featuresets.values()
    examples = [spec.name for spec in known if spec.extractors][:EXAMPLES]
    return _page(context, request, outputs=outputs, rows=rows, message="", examples=examples)


async def query(context: PageContext, request: Request[Any, Any]) -> HttpResponse:
    """Return the page with the answer to a query, its plan and times, or why it fails."""
    fields = form_of(request.body, request.headers)
    outputs, text = fields.get("outputs", "")[:LONGEST], fields.get("rows", "").strip()
    try:
        data = await json_of(request, text, "the inputs", empty={})
        if isinstance(data, dict):
            data = {name: value if isinstance(value, list) else [value] for name, value in data.items()}
        names = list(data if isinstance(data, dict) else data[0] if data and isinstance(data[0], dict) else ())
        asked: dict[str, Any] = {"inputs": names, "outputs": _names(outputs), "data": data}
        started = time.perf_counter()
        answer = await context.ask(request, "extract_features", **asked)
        took_ms = (time.perf_counter() - started) * 1000
        plan = await context.ask_if_allowed(request, "explain_query", **asked, runs=3)
    except CarawayError as error:
        status = 400 if isinstance(error, UnreadableFieldError) else 422
        return _page(context, request, outputs=outputs, rows=text, message=str(error), status=status)
    rows = [[_text(value) for value in row] for row in zip(*answer.values(), strict=True)]
    return _page(
        context,
        request,
        outputs=outputs,
        rows=text,
        message="",
        columns=list(answer),
        answer=rows[:ROWS],
        more=max(0, len(rows) - ROWS),
        took_ms=took_ms,
        plan=None if isinstance(plan, str) else plan,
    )


def _page(
    context: PageContext,
    request: Request[Any, Any],
    *,
    outputs: str,
    rows: str,
    message: str,
    status: int = 200,
    **found: object,
) -> HttpResponse:
    empty = {"examples": [], "columns": [], "answer": [], "more": 0, "took_ms": None, "plan": None}
    values = {**empty, **found}
    return context.page(
        request, "query.html", http_status=status, outputs=outputs, rows=rows, message=message, **values
    )


def given_features(context: PageContext, request: Request[Any, Any], outputs: list[str]) -> list[str]:
    """Return the features that a query has to give so that others can be computed."""
    catalogue = context.catalogue(request)
    wanted = [
        feature
        for name in outputs
        for feature in (
            [f"{name}.{one.name}" for one in catalogue.featuresets[name].features]
            if name in catalogue.featuresets
            else [name]
        )
    ]
    reached = dict.fromkeys(wanted)
    for name in wanted:
        reached |= dict.fromkeys(
            node.partition(":")[2]
            for node in sorted(catalogue.ancestors(f"feature:{name}"))
            if node.startswith("feature:")
        )
    return [name for name in reached if name in catalogue.features and name not in catalogue.extractors]


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _text(value: object) -> str:
    return "null" if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()
