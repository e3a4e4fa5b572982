"""The handlers that read: query, its explanation, and lookup."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.handlers.arrow import arrow_response, decoded_bytes, read_columns
from caraway.apps.server.handlers.context import ReadContext
from caraway.apps.server.handlers.queries import INLINE_ROWS, Given, Keep, check_rows, count_failure, rows_of
from caraway.apps.server.http.bodies import Flag, Values
from caraway.apps.server.http.endpoints import JSON
from caraway.apps.server.http.messages import HttpResponse, Request, in_decoder, json_response, media_type
from caraway.apps.server.served_graph import ServedGraph
from caraway.apps.server.tracing.plans import traced
from caraway.apps.server.tracing.spans import TRACE, span
from caraway.compute.query.executor import CompiledPlan, parse_instants
from caraway.compute.query.explain import MAX_RUNS, analyze, explain
from caraway.dataplane.archive.served_log import Origin
from caraway.dataplane.archive.served_metrics import DEFAULT_WORKFLOW
from caraway.dataplane.ingest.table import json_type
from caraway.errors import CarawayError, InvalidInputError
from caraway.process.json_text import MAX_VALUES, VALUE_BYTES

# The column of a body in Arrow that holds the instant of each row.
TIMESTAMPS = "timestamps"
# How often a query with rows runs to be explained, if the request doesn't set `runs`. The runs measure the times of the
# query's parts.
RUNS = 20
# The most characters of a workflow's name. It is a label of metrics, and is written with the rows of queries with
# `log=true`.
MAX_WORKFLOW = 100
# The most features or fields that a list of a request names. Compiled plans are cached by these lists, so longer lists
# would fill the memory.
MAX_NAMES = 5_000
# The most characters of a feature's or field's name in these lists; names in Python and of columns are far shorter.
MAX_NAME = 1_000

# The type of a list of features or fields in a body.
Names = Annotated[list[Annotated[str, Meta(max_length=MAX_NAME)]], Meta(max_length=MAX_NAMES)]
NAMES = Meta(description="a list of names")
Instants = Annotated[
    Annotated[list[Any], Meta(extra_json_schema={"items": {"type": ["string", "number"]}})] | None,
    Meta(description="a list with an instant for each row, as ISO 8601 text or an epoch number"),
]
ROWS = {
    "description": "a list of objects (rows), an object of lists (columns), or JSON text of either",
    "anyOf": [
        {"type": "array", "items": {"type": "object"}},
        {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
        {"type": "string"},
    ],
}
Rate = Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="a number from 0 to 1")]
Workflow = Annotated[
    Annotated[str, Meta(max_length=MAX_WORKFLOW)] | None,
    Meta(description=f"the name of a workflow, of at most {MAX_WORKFLOW} characters"),
]


class Question(Struct, kw_only=True):
    """The features that are wanted, and those that are given."""

    inputs: Annotated[Names, NAMES]
    outputs: Annotated[Names, NAMES]
    timestamps: Instants = None


class QueryBody(Question, kw_only=True):
    """A query; with `log` a share of its rows is kept."""

    data: Annotated[Any, Meta(extra_json_schema=ROWS)]
    workflow: Workflow = None
    log: Flag = None
    sampling_rate: Rate = None


class ExplainBody(Question, kw_only=True):
    """A query that is explained, and how often it runs if it has rows."""

    data: Annotated[Any, Meta(extra_json_schema={**ROWS, "anyOf": [*ROWS["anyOf"], {"type": "null"}]})] = None
    runs: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_RUNS)] | None, Meta(description=f"a number from 1 to {MAX_RUNS}")
    ] = None


class ArrowParameters(Struct):
    """The members of a query whose body is an Arrow IPC stream of the inputs."""

    outputs: Annotated[str, Meta(description="full names of outputs, separated by commas, if the body is in Arrow")] = (
        ""
    )
    workflow: Workflow = None
    log: Flag = None
    sampling_rate: Rate = None


class LookupBody(Struct):
    """The keys of rows that are wanted, and the fields; without fields all of them."""

    keys: Annotated[
        list[Any],
        Meta(
            description='a list of objects, such as [{"user": 1}]',
            extra_json_schema={"items": {"type": "object"}},
        ),
    ]
    fields: Annotated[Names | None, NAMES] = None
    timestamps: Instants = None


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The rows of a lookup, by column; `found` is false for a key without a row."""

    found: list[bool]
    data: dict[str, Values]


async def query(context: ReadContext, request: Request[QueryBody, ArrowParameters]) -> HttpResponse:
    """Return features for rows of inputs.

    A body may be an Arrow IPC stream of the inputs; its other members are in the query string.
    """
    served = context.limits.seen(request)
    in_arrow = media_type(request.headers.get("content-type")) == ARROW
    asked: QueryBody | ArrowParameters
    if in_arrow:
        asked = request.parameters()
        outputs = [name for name in asked.outputs.split(",") if name]
        if not outputs:
            raise InvalidInputError("with a body in Arrow the outputs stand in the query string: ?outputs=Set.a,Set.b")
        data: Any = await _columns(request)
        at = data.pop(TIMESTAMPS, None)
        inputs = list(data)
    else:
        with span("parse"):
            asked = await request.read()
        inputs, outputs, data, at = asked.inputs, asked.outputs, asked.data, asked.timestamps
    with span("plan"):
        plan = _planned(served, inputs, outputs, asked.workflow)
    if (trace := TRACE.get()) is not None:
        plan = traced(plan, trace)
    given = await given_of(request, data, at)
    keep = _keep(context, served, request.branch, asked)
    accepted = media_type(request.headers.get("accept"))
    if accepted == ARROW or (in_arrow and accepted != JSON):
        columns = await context.queries.columns(plan, given, asked.workflow, keep)
        return arrow_response(columns, [(column.name, column.dtype) for column in plan.plan.outputs])
    answer = await context.queries.answer(plan, given, asked.workflow, keep)
    with span("encode"):
        return json_response(answer)


async def _columns(request: Request[Any, Any]) -> dict[str, Any]:
    """Return the columns of a body in Arrow; a large body is read in a thread."""
    body = request.body
    if request.is_large:
        size = await in_decoder(decoded_bytes, body)
        # A 64-bit number takes 8 bytes in Arrow, and up to VALUE_BYTES (64) as a Python value. So the memory of the
        # values is estimated as eight times the bytes of the stream, but at most as that of MAX_VALUES values, which is
        # the most that a request may have.
        request.hold.grow(size + min(8 * size, MAX_VALUES * VALUE_BYTES))
    return dict(await in_decoder(read_columns, body) if request.is_large else read_columns(body))


def _keep(context: ReadContext, served: ServedGraph, branch: str, asked: QueryBody | ArrowParameters) -> Keep | None:
    rate = 1.0 if asked.sampling_rate is None else asked.sampling_rate
    if not asked.log or not rate:
        return None
    workflow = asked.workflow or DEFAULT_WORKFLOW
    origin = Origin(branch=branch, commit=served.version, workflow=workflow, rate=rate)
    return partial(context.keep, origin=origin)


async def explain_query(context: ReadContext, request: Request[ExplainBody]) -> HttpResponse:
    """Return what a query does, and how long each part takes."""
    served = context.limits.seen(request)
    body = await request.read()
    plan = served.queries.plan(body.inputs, body.outputs)
    if body.data is None:
        explained = explain(plan)
    else:
        given = await given_of(request, body.data, body.timestamps)
        runs = RUNS if body.runs is None else body.runs
        check_rows(rows_of(given.data) * runs)
        explained = await context.queries.in_thread(partial(analyze, plan, given.data, given.at, runs))
    return json_response({"commit": served.version or None, **msgspec.to_builtins(explained)})


async def lookup(context: ReadContext, request: Request[LookupBody], dataset: str) -> HttpResponse:
    """Return rows of a dataset by key."""
    served = context.limits.seen(request)
    body = await request.read()
    keys, fields = body.keys, body.fields or []
    if not all(isinstance(row, dict) for row in keys):
        raise InvalidInputError('keys has to be a list of objects, such as [{"user": 1}]')
    look_up = partial(served.queries.lookup, dataset, keys, fields, body.timestamps)
    if len(keys) > INLINE_ROWS or request.is_large or served.queries.asks_others:
        check_rows(len(keys), len(fields) or len(served.queries.catalog.dataset(dataset).fields))
        found, data = await context.queries.in_thread(look_up)
    else:
        found, data = look_up()
    return json_response({"found": found, "data": data})


def _planned(served: ServedGraph, inputs: Sequence[str], outputs: Sequence[str], workflow: str | None) -> CompiledPlan:
    try:
        return served.queries.plan(inputs, outputs)
    except CarawayError as error:
        count_failure(error, workflow)
        raise


async def given_of(request: Request[Any, Any], data: object, at: Sequence[object] | None) -> Given:
    """Return the rows or columns of a query, and their instants."""
    rows = await data_of(request, data)
    return Given(rows, None if at is None else await instants(at), is_large=request.is_large)


async def data_of(request: Request[Any, Any], data: object) -> list[object] | dict[str, object]:
    """Return rows or columns, which may come as JSON text."""
    if isinstance(data, str):
        try:
            data = await request.values(data.encode())
        except InvalidInputError as error:
            raise InvalidInputError(f"data is text that {error}") from error
    if not isinstance(data, (list, dict)):
        raise InvalidInputError(
            f"data is {json_type(data)}; a list of objects (rows) or an object of lists (columns) is expected"
        )
    return data


async def instants(values: Sequence[object]) -> list[int]:
    """Return the instants that a request names; many are read in a thread."""
    if len(values) <= INLINE_ROWS:
        return parse_instants(values)
    check_rows(len(values))
    return await in_decoder(parse_instants, values)
