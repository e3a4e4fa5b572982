"""The handler that says what is wrong now: with parts, with rows that were refused, and by what the watches found."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson

from caraway.apps.server.console.problems import problems_found, problems_of
from caraway.apps.server.handlers.admin import status
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.handlers.dataset_drift import dataset_findings
from caraway.apps.server.handlers.dead_letters import waiting
from caraway.apps.server.handlers.drift import drift_findings
from caraway.apps.server.handlers.expectations import expectations
from caraway.apps.server.handlers.skew import skew
from caraway.apps.server.http.endpoints import Handler, forms
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import CarawayError
from caraway.state.model import MAIN
from caraway.state.permissions import Mode

LETTERS = "dead letters"
# The handlers that report problems of rows and features, with the query strings by which they read little.
FINDINGS: Mapping[str, tuple[Handler, str]] = {
    LETTERS: (waiting, ""),
    "expectations": (expectations, "brief=true"),
    "skew": (skew, "samples=0"),
    "drift of features": (drift_findings, ""),
    "drift of datasets": (dataset_findings, ""),
}


async def problems(context: ServerContext, request: Request) -> HttpResponse:
    """Return what is wrong now, since when, and what to do: parts, dead letters, expectations, skew and drift."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    datasets = [spec.name for spec in context.limits.definitions(request, served).datasets]
    answer = orjson.loads((await status(context, request)).body)
    found = problems_of(answer, datasets, datetime.now(UTC))
    reads_data = request.caller.may(Mode.READ_DATA, request.branch)
    if reads_data:
        # A request for dead letters would wait long for a broker that doesn't answer, so none is sent if that is known.
        asked = {kind: how for kind, how in FINDINGS.items() if kind != LETTERS or "kafka" not in answer["problems"]}
        answers = await asyncio.gather(*(_found(context, request, *how) for how in asked.values()))
        found += problems_found(dict(zip(asked, answers, strict=True)))
    branch = "" if request.branch == MAIN else f"&branch={quote(request.branch, safe='')}"
    shown = [replace(problem, link=problem.link and problem.link + branch) for problem in found]
    return json_response({"branch": request.branch, "reads_data": reads_data, "problems": shown})


async def _found(context: ServerContext, request: Request[Any, Any], handler: Handler, parameters: str) -> Any:
    """Return what a handler answers to the caller, or the text of the error why it can't."""
    try:
        asked = replace(request, query_string=parameters, parameters_form=forms(handler)[1])
        return orjson.loads((await handler(context, asked)).body)
    except CarawayError as error:
        return str(error)
