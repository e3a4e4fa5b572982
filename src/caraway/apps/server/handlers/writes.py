"""The handlers that write: log and commit."""

import asyncio
import hashlib
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import approval
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.handlers.reads import ROWS, data_of
from caraway.apps.server.http.bodies import Flag, Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, in_decoder, json_response
from caraway.apps.server.served_graph import ServedGraph
from caraway.apps.server.tracing.spans import TRACE, span
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.dataplane.ingest.intake import IngestReport
from caraway.dataplane.ingest.intake_process import LEAST_BYTES, MOST_BYTES
from caraway.dataplane.ingest.requests import RequestKey
from caraway.dataplane.ingest.targets import RowError
from caraway.errors import InvalidInputError
from caraway.graph.wire.graphs import decode_commit

# The most characters in the name of a webhook or endpoint. An error about an unknown name proposes the nearest known
# one, and the search for it takes too long for longer names.
MAX_NAME = 1_000
Name = Annotated[str, Meta(max_length=MAX_NAME)]
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "maxLength": 200},
    "description": "A new one for each request; with it a request can be sent again.",
}


class LogBody(Struct):
    """Rows for the endpoint of a webhook."""

    webhook: Annotated[Name, Meta(description="the name of a webhook")]
    endpoint: Annotated[Name, Meta(description="the name of an endpoint of the webhook")]
    data: Annotated[Any, Meta(extra_json_schema=ROWS)]


class LogHead(Struct):
    """A log request, of whose rows there is only the text."""

    webhook: Name
    endpoint: Name
    data: msgspec.Raw


_DECODE_HEAD = msgspec.json.Decoder(LogHead).decode


class LogAnswer(Struct):
    """The number of rows that were accepted and rejected, with the first errors; by dataset if there are several."""

    accepted: int
    rejected: int
    errors: list[RowError]
    warnings: list[str]
    datasets: dict[str, int] = {}


class CommitAnswer(Struct):
    """The changes that a commit makes, or with `preview` would make."""

    summary: list[str]
    commit_id: str
    preview: bool


class CommitParameters(Struct):
    """Options of a commit, which replace those in the definitions."""

    preview: Flag = None
    incremental: Flag = None
    backfill: Flag = None


async def commit(context: ServerContext, request: Request[Nothing, CommitParameters]) -> HttpResponse:
    """Apply definitions, sent as protobuf."""
    context.deployment.graphs.require_served_graph(request.branch)
    if not request.body:
        # An empty body is a valid protobuf message, and such a commit would empty the branch, so it is refused.
        raise InvalidInputError("the body is empty; a commit request is expected")
    given = await in_decoder(decode_commit, request.body)
    options = msgspec.structs.asdict(request.parameters())
    wanted = replace(given, **{name: value for name, value in options.items() if value is not None})
    result = await asyncio.to_thread(
        context.deployment.control.commits.commit,
        wanted,
        branch=request.branch,
        author=request.caller.account,
        approve=approval(request.caller, request.branch),
        share=partial(context.sharing.check_commit, request.caller, request.branch),
    )
    if not wanted.preview:
        # This server reads the branches again before it answers. So the caller can log to new endpoints at once, and
        # query new features as soon as the branch serves the commit.
        await asyncio.to_thread(context.deployment.graphs.reload)
    return json_response(
        {
            "summary": [f"{line}\n" for line in result.summary],
            "commit_id": result.commit_id,
            "preview": wanted.preview,
            **result.details,
        }
    )


async def log(context: ServerContext, request: Request[LogBody]) -> HttpResponse:
    """Accept rows for the endpoint of a webhook."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    head = _head(request.body)
    if head is not None:
        endpoint = served.endpoints.find(head.webhook, head.endpoint)
        _check(context, request, served, endpoint)
        if context.ingest.leaves(endpoint):
            report = await context.ingest.put_text(endpoint, bytes(head.data), _key_of(request))
            _follow(context, endpoint, report)
            return json_response(report.to_json(), report.status)
    with span("parse"):
        body = await request.read()
    endpoint = served.endpoints.find(body.webhook, body.endpoint)
    _check(context, request, served, endpoint)
    data = await data_of(request, body.data)
    with span("write"):
        report = await context.ingest.put(endpoint, data, _key_of(request), is_large=request.is_large)
    _follow(context, endpoint, report)
    return json_response(report.to_json(), report.status)


def _check(context: ServerContext, request: Request[LogBody], served: ServedGraph, endpoint: Endpoint) -> None:
    """Check that the caller may write to the datasets that an endpoint feeds. Raises `ForbiddenError` if not."""
    context.limits.check_log(request, served, endpoint)
    written = [(target.dataset, target.topic) for target in endpoint.targets]
    context.sharing.check_written(request.caller, request.branch, written)


def _follow(context: ServerContext, endpoint: Endpoint, report: IngestReport) -> None:
    """Have the trace of a request, if there is one, show when its rows have passed each job and index."""
    trace = TRACE.get()
    if trace is not None and report.accepted:
        context.deployment.status.freshness.follow_event(trace, frozenset(target.topic for target in endpoint.targets))


def _key_of(request: Request[LogBody]) -> RequestKey | None:
    """Return the idempotency key of a request, None if it has none."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    digest = hashlib.blake2b(request.body, digest_size=16).digest()
    return RequestKey.parse(key, request.headers.get("caraway-elapsed-ms"), digest, request.caller.account)


def _head(body: bytes) -> LogHead | None:
    """Return a log request without the values of its rows, if another process may take it (`caraway.dataplane.ingest`).

    None for a body that isn't as expected: the server then reads it as a whole, and raises the error.
    """
    if not LEAST_BYTES <= len(body) <= MOST_BYTES:
        return None
    try:
        return _DECODE_HEAD(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
