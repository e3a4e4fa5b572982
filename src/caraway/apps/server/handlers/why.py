"""The handlers of explanations, which processes of offline queries compute (docs/guides/why.md)."""

import asyncio
import time
import uuid
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import Tags
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.handlers.offline import RequestId, check_offline, query_seen, record
from caraway.apps.server.http.bodies import Flag
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.compute.query.model import LookupStep, PythonStep, QueryPlan
from caraway.compute.why.model import LISTED, MAX_LISTED
from caraway.dtypes.instants import instant_us
from caraway.errors import InvalidInputError
from caraway.graph.specs import Graph
from caraway.graph.trees import datasets_read, reached
from caraway.offline.queries.model import (
    JSON_INPUT,
    OfflineQuery,
    OfflineRequest,
    QueryStatus,
    StoredRows,
    WhyRequest,
    folder_of,
)
from caraway.offline.why.running import NAME
from caraway.state.permissions import Caller, Mode

# The default and the greatest number of seconds that a request waits for an explanation. After that time the answer has
# none, and the caller asks again.
WAIT_SECONDS, MAX_WAIT_SECONDS = 10.0, 60.0
LOOK_SECONDS = 0.05
MAX_NAME = 1_000

OBJECT = {"description": "the value of each input, by the full name of its feature", "type": "object"}


class WhyBody(Struct, kw_only=True):
    """The question why a feature has its value."""

    feature: Annotated[str, Meta(max_length=MAX_NAME, description="the full name of the feature")]
    inputs: Annotated[dict[str, Any], Meta(extra_json_schema=OBJECT)]
    at: Annotated[Any, Meta(extra_json_schema={"description": "ISO text or epoch number; null: now"})] = None
    as_known: Annotated[Flag, Meta(description="true: only what had been ingested by then")] = None
    offset: Annotated[int, Meta(ge=0, le=1 << 40, description="how many parts of a lookup come before the listed")] = 0
    limit: Annotated[int, Meta(ge=0, le=MAX_LISTED, description="the most parts that are listed")] = LISTED
    sample: Annotated[Flag, Meta(description="true: list a sample, spread evenly over all parts")] = None
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="seconds to wait for it")] = WAIT_SECONDS


class WhyParameters(Struct):
    """The id of an explanation."""

    request_id: RequestId
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="seconds to wait for it")] = WAIT_SECONDS


class WhyAnswer(Struct):
    """An explanation; `why` is null until it is ready, or if there is an error."""

    request_id: str
    status: str
    error: str | None
    why: dict[str, Any] | None


async def why(context: ServerContext, request: Request[WhyBody]) -> HttpResponse:
    """Explain the value of a feature: the events and versions from which it is computed."""
    served = context.limits.seen(request)
    asked = await request.read()
    if "." not in asked.feature:
        raise InvalidInputError(f"feature: {asked.feature[:100]!r} is no feature; name it as Featureset.feature")
    plan = served.queries.plan(list(asked.inputs), [asked.feature])
    check_offline(plan, served.queries.catalog)
    at_us = time.time_ns() // 1000 if asked.at is None else instant_us(asked.at)
    # Inputs that don't fit are refused before a process is started for them.
    plan.batch({name: [value] for name, value in asked.inputs.items()}, [at_us])
    query_id = str(uuid.uuid4())
    wanted = WhyRequest(
        feature=asked.feature,
        at_us=at_us,
        as_known=bool(asked.as_known),
        offset=asked.offset,
        limit=asked.limit,
        sample=bool(asked.sample),
        hidden=hidden_parts(request.caller, request.branch, context.limits.tags(served), served.graph, plan.plan),
    )
    recorded = OfflineRequest(
        inputs=tuple(asked.inputs),
        outputs=(asked.feature,),
        timestamp_column="",
        rows=StoredRows(JSON_INPUT),
        as_known=wanted.as_known,
        why=wanted,
    )
    rows = (JSON_INPUT, orjson.dumps(asked.inputs))
    await record(context, request, query_id, recorded, rows, commit=served.version)
    return json_response(await _answered(context, request, query_id, asked.wait))


async def why_answer(context: ServerContext, request: Request[Any, WhyParameters]) -> HttpResponse:
    """Return an explanation that was asked for earlier."""
    asked = request.parameters()
    return json_response(await _answered(context, request, asked.request_id, asked.wait))


async def _answered(context: ServerContext, request: Request[Any, Any], query_id: str, wait_s: float) -> dict[str, Any]:
    until = time.monotonic() + wait_s
    query = await query_seen(context, request, query_id)
    if query.request.why is None:
        raise InvalidInputError(f"{query_id} is an offline query, no explanation; see query_offline/status")
    while not query.status.is_over and time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        query = await asyncio.to_thread(context.deployment.offline.queries.get, query_id)
    return {
        "request_id": query.id,
        "status": query.status.value,
        "error": query.error if query.status.is_over else None,
        "why": await asyncio.to_thread(_read, context, query),
    }


def _read(context: ServerContext, query: OfflineQuery) -> Any:
    if query.status is not QueryStatus.SUCCEEDED:
        return None
    return orjson.loads(context.deployment.offline.objects.read(f"{folder_of(query.id)}/{NAME}"))


def hidden_parts(caller: Caller, branch: str, tags: Tags, graph: Graph, plan: QueryPlan) -> dict[str, str]:
    """Return the datasets and fields on the way to a feature that a caller may not read, with the reason.

    Args:
        caller: The caller.
        branch: The branch.
        tags: The tags of the graph.
        graph: The definitions of the branch.
        plan: The query of the feature.
    """
    if caller.may_all(Mode.READ_DATA, branch):
        return {}
    read: dict[str, None] = {}
    for step in plan.steps:
        if isinstance(step, LookupStep):
            read[step.dataset] = None
        elif isinstance(step, PythonStep):
            read.update(dict.fromkeys(step.datasets))
    edges = {
        spec.name: [name for pipeline in spec.pipelines for name in datasets_read(pipeline.operator)]
        for spec in graph.datasets
    }
    known = {spec.name: spec for spec in graph.datasets}
    found: dict[str, str] = {}
    for dataset in [*read, *reached(read, edges)]:
        if dataset not in known:
            continue
        own = [(dataset, tags.entities.get(dataset, frozenset()))]
        fields = list(tags.fields_of(dataset, [field.name for field in known[dataset].fields]))
        for name in caller.refused(Mode.READ_DATA, branch, [*own, *fields]):
            found[name] = f"account {caller.account!r} may not read {name} on branch {branch!r}"
    return found
