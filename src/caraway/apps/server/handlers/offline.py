"""The handlers of offline queries: they record queries, which processes of their own compute (`caraway.offline`)."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
import pyarrow as pa
from msgspec import Meta, Struct

from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.handlers.arrow import checked_schema
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.handlers.reads import MAX_WORKFLOW, NAMES, Names
from caraway.apps.server.http.bodies import Flag
from caraway.apps.server.http.messages import HttpResponse, Request, in_decoder, json_response, media_type
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import CompiledPlan
from caraway.compute.query.lookups import require_index
from caraway.compute.query.model import LookupStep, PythonStep
from caraway.dataplane.archive.served_metrics import DEFAULT_WORKFLOW
from caraway.dataplane.archive.store.model import archived_topics
from caraway.dataplane.archive.store.reading import ArchivedTopics, cuts_now
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import BusyError, ForbiddenError, InvalidInputError, UnknownEntityError
from caraway.graph.plan.model import GraphPlan
from caraway.offline.explaining import NAME as EXPLANATION
from caraway.offline.explaining import explanation_of
from caraway.offline.queries.credentials import sealed
from caraway.offline.queries.inputs import FORMATS
from caraway.offline.queries.model import (
    ARROW_INPUT,
    JSON_INPUT,
    Execution,
    OfflineQuery,
    OfflineRequest,
    Place,
    StoredRows,
    folder_of,
)
from caraway.offline.queries.outputs import read_part
from caraway.offline.queries.places import own_prefix, place_of
from caraway.offline.sizes import MESSAGES, sizes_of
from caraway.state.permissions import Mode

T = TypeVar("T")

# The most characters of a column's name, and of addresses.
MAX_TEXT = 1_000
# The most offline queries and explanations of an account that aren't over. Each may have 32 MiB of rows in the object
# store until it is over.
MAX_UNFINISHED = 50
# Postgres can't store a text with the character NUL.
STORABLE = r"^[^\x00]*$"
Text = Annotated[str, Meta(max_length=MAX_TEXT, pattern=STORABLE)]
TimestampColumn = Annotated[
    str, Meta(max_length=MAX_TEXT, pattern=STORABLE, description="the column of the rows' times")
]
RequestId = Annotated[str, Meta(max_length=100, pattern=STORABLE, description="the id of an offline query")]
Label = Annotated[
    Annotated[str, Meta(max_length=MAX_WORKFLOW, pattern=STORABLE)] | None,
    Meta(description=f"the name of a workflow, of at most {MAX_WORKFLOW} characters"),
]
Where = Annotated[
    Execution | None, Meta(description="process or spark: where it is computed; auto: chosen by size, the default")
]
AsKnown = Annotated[Flag, Meta(description="true: each row sees only what had been ingested by its time")]
Before = Annotated[Flag, Meta(description="true: each row sees only what was before its time, without its own event")]
INPUT = {
    "description": 'the rows: {"Pandas": {column: values}}, or {"S3": {"s3_table": …, "feature_to_column_map": …}}',
    "type": "object",
}
TABLE = {"description": "the place of files, as in the input; the server's own object store if it is null"}


class OfflineBody(Struct, kw_only=True):
    """An offline query; `use_v2` and `num_dpus` are accepted and don't matter."""

    input_features: Annotated[Names, NAMES]
    output_features: Annotated[Names, NAMES]
    timestamp_column: TimestampColumn
    input: Annotated[Any, Meta(extra_json_schema=INPUT)]
    s3_output: Annotated[Any, Meta(extra_json_schema=TABLE)] = None
    workflow: Label = None
    as_known: AsKnown = None
    before: Before = None
    execution: Where = None
    use_v2: Flag = None
    num_dpus: Annotated[int | None, Meta(description="a number, which doesn't matter")] = None


class OfflineParameters(Struct):
    """The members of an offline query whose body is an Arrow IPC stream of its rows."""

    inputs: Annotated[str, Meta(description="full names of inputs, separated by commas, if the body is in Arrow")] = ""
    outputs: Annotated[str, Meta(description="names of outputs, separated by commas, if the body is in Arrow")] = ""
    timestamp_column: TimestampColumn = ""
    workflow: Label = None
    as_known: AsKnown = None
    before: Before = None
    execution: Where = None


class ExplainParameters(Struct):
    """The id of an offline query; or what one would ask for, without its rows."""

    request_id: Annotated[str, Meta(max_length=100, pattern=STORABLE, description="the id of an offline query")] = ""
    inputs: Annotated[str, Meta(description="full names of inputs, separated by commas, without an id")] = ""
    outputs: Annotated[str, Meta(description="names of outputs, separated by commas, without an id")] = ""
    as_known: AsKnown = None
    execution: Where = None


class ExplainAnswer(Struct):
    """The explanation of an offline query, and its progress, if it was asked."""

    execution: str
    reason: str
    records: int
    memory_mb: float
    limit_mb: int
    seconds: float
    datasets: list[dict[str, Any]]
    progress: dict[str, Any] | None


class RequestParameters(Struct):
    """The id of an offline query."""

    request_id: RequestId


class PartParameters(Struct):
    """The id of an offline query, and the number of a part of its result, from 0 on."""

    request_id: RequestId
    part: Annotated[int, Meta(ge=0, description="the number of a part, from 0 on")] = 0


class OfflineAnswer(Struct):
    """The progress of an offline query."""

    request_id: str
    output_bucket: str
    output_prefix: str
    completion_rate: float
    failure_rate: float
    status: str
    rows: int | None
    rows_done: int
    rows_failed: int
    rows_short: int
    own_events: float
    parts: int
    bytes: int
    seconds: dict[str, float]
    error: str | None
    asked_at: str
    ended_at: str | None


class OfflineList(Struct):
    """The newest offline queries of a branch."""

    queries: list[OfflineAnswer]


class _Credentials(Struct):
    access_key: Text
    secret_key: Text


class _Access(Struct):
    creds: _Credentials | None = None
    role_arn: Text | None = None


class _System(Struct):
    access: _Access = msgspec.field(name="S3", default_factory=_Access)


class _Database(Struct):
    db: _System = msgspec.field(default_factory=_System)


class _Delimited(Struct):
    delimiter: Annotated[int, Meta(ge=1, le=127)] = ord(",")
    headers: tuple[Text, ...] | None = None


class _Csv(Struct):
    csv: _Delimited


class _Table(Struct):
    bucket: Text
    path_prefix: Text
    format: str | _Csv = "parquet"
    db: _Database = msgspec.field(default_factory=_Database)
    pre_sorted: bool = False


class _Files(Struct):
    s3_table: _Table
    compression: str = "None"
    feature_to_column_map: dict[Text, Text] | None = None


# Decoders are made while the module is imported, since making one isn't safe with several threads.
_TABLE = msgspec.json.Decoder(_Table).decode
_FILES = msgspec.json.Decoder(_Files).decode


async def query_offline(context: ServerContext, request: Request[OfflineBody, OfflineParameters]) -> HttpResponse:
    """Begin an offline query: features of each row as of the row's time.

    A body may be an Arrow IPC stream of the rows; its other members are in the query string.
    """
    served = context.limits.seen(request)
    query_id = str(uuid.uuid4())
    if media_type(request.headers.get("content-type")) == ARROW:
        asked = request.parameters()
        inputs, outputs = _listed(asked.inputs), _listed(asked.outputs)
        await in_decoder(partial(_check_arrow, needed=[*inputs, asked.timestamp_column]), request.body)
        content: tuple[str, bytes] | None = (ARROW_INPUT, request.body)
        rows: StoredRows | Place = StoredRows(ARROW_INPUT)
        output, timestamp_column, workflow = None, asked.timestamp_column, asked.workflow
        as_known, before, execution = asked.as_known, asked.before, asked.execution
    else:
        body = await request.read()
        inputs, outputs = body.input_features, body.output_features
        timestamp_column, workflow = body.timestamp_column, body.workflow
        as_known, before, execution = body.as_known, body.before, body.execution
        rows, content = _rows(context, query_id, body)
        output = None if body.s3_output is None else _place(context, query_id, _converted(body.s3_output, _TABLE), {})
    if not outputs:
        raise InvalidInputError("output_features: name at least one feature or featureset")
    check_offline(served.queries.plan(inputs, outputs), served.queries.catalog)
    asked_for = OfflineRequest(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        timestamp_column=timestamp_column,
        rows=rows,
        output=output,
        as_known=bool(as_known),
        before=bool(before),
        execution=execution or Execution.AUTO,
    )
    await record(context, request, query_id, asked_for, content, commit=served.version, workflow=workflow)
    return await _answered(context, request, query_id)


async def offline_status(context: ServerContext, request: Request[Any, RequestParameters]) -> HttpResponse:
    """Return the progress of an offline query."""
    return await _answered(context, request, request.parameters().request_id)


async def cancel_offline(context: ServerContext, request: Request[Any, RequestParameters]) -> HttpResponse:
    """Request the end of an offline query, which ends after the part that it computes."""
    query = await query_seen(context, request, request.parameters().request_id)
    await asyncio.to_thread(context.deployment.offline.queries.cancel, query.id)
    context.deployment.offline.runner.wake()
    return await _answered(context, request, query.id)


async def list_offline(context: ServerContext, request: Request[Any]) -> HttpResponse:
    """Return the newest offline queries of a branch that the caller may see."""
    found = await asyncio.to_thread(context.deployment.offline.queries.of_branch, request.branch)
    shown = [_shown(context, query) for query in found if _may_see(request, query)]
    return json_response({"queries": shown})


async def explain_offline(context: ServerContext, request: Request[Any, ExplainParameters]) -> HttpResponse:
    """Explain what an offline query reads, where it is computed and why, before it is asked or afterwards."""
    asked = request.parameters()
    if asked.request_id:
        query = await query_seen(context, request, asked.request_id)
        found = await asyncio.to_thread(_recorded, context.deployment.offline.objects, query.id)
        return json_response({**found, "progress": _shown(context, query)})
    served = context.limits.seen(request)
    if not asked.outputs:
        raise InvalidInputError("name the outputs of a query, or the request_id of one that was asked")
    plan = served.queries.plan(_listed(asked.inputs), _listed(asked.outputs))
    check_offline(plan, served.queries.catalog)
    explained = partial(
        _explained, context, served.plan, plan, asked.execution or Execution.AUTO, known=bool(asked.as_known)
    )
    return json_response({**await asyncio.to_thread(explained), "progress": None})


def _recorded(objects: ObjectFolder, query_id: str) -> dict[str, Any]:
    """Return the explanation that a query's process has written."""
    name = f"{folder_of(query_id)}/{EXPLANATION}"
    if all(stored.name != name for stored in objects.stored(folder_of(query_id))):
        raise UnknownEntityError(f"the query {query_id} has not begun to read, so nothing is known of it yet")
    found: dict[str, Any] = orjson.loads(objects.read(name))
    return found


def _explained(
    context: ServerContext, plans: GraphPlan, plan: CompiledPlan, wanted: Execution, *, known: bool
) -> dict[str, Any]:
    deployment = context.deployment
    cuts = cuts_now(deployment.topics.servers, archived_topics([plans]))
    source = ArchivedTopics(deployment.topics.servers, deployment.offline.objects.url, cuts)
    sizes = sizes_of(plan.plan.steps, plans.indexes, plans.topics, source, piece=MESSAGES)
    found = explanation_of(sizes, plans.indexes, wanted, limit_mb=deployment.offline.memory_mb, known=known)
    explained: dict[str, Any] = msgspec.to_builtins(found)
    return explained


async def offline_result(context: ServerContext, request: Request[Any, PartParameters]) -> HttpResponse:
    """Return a part of the result of an offline query as an Arrow IPC stream."""
    asked = request.parameters()
    query = await query_seen(context, request, asked.request_id)
    if query.request.output is not None:
        raise InvalidInputError(f"the results of this query are at {query.request.output.url}; read them there")
    if asked.part >= len(query.parts):
        raise UnknownEntityError(
            f"the query has {len(query.parts)} parts by now, there is no part {asked.part}; it is {query.status.value}"
        )
    read = partial(read_part, context.deployment.offline.objects, own_prefix(query.id), asked.part)
    body = await asyncio.to_thread(lambda: _streamed(read()))
    return HttpResponse(200, [("content-type", ARROW)], body)


async def record(
    context: ServerContext,
    request: Request[Any, Any],
    query_id: str,
    asked: OfflineRequest,
    content: tuple[str, bytes] | None,
    *,
    commit: str,
    workflow: str | None = None,
) -> None:
    """Record an offline query or an explanation, after the object with its rows, and have a process begin it.

    Raises `BusyError` if the caller's account has `MAX_UNFINISHED` of them. Requests that come at the same time are
    counted when they come, so together they may exceed that number.
    """
    offline, account = context.deployment.offline, request.caller.account
    if await asyncio.to_thread(offline.queries.unfinished, account) >= MAX_UNFINISHED:
        raise BusyError(
            f"{MAX_UNFINISHED} offline queries and explanations of account {account!r} aren't over, and no account may "
            "have more; ask again when one of them has ended, or cancel those that you don't need"
        )
    if content is not None:
        name, text = content
        await asyncio.to_thread(offline.objects.write, f"{folder_of(query_id)}/{name}", text)
    add = partial(
        offline.queries.add,
        query_id,
        asked,
        branch=request.branch,
        commit=commit,
        account=account,
        workflow=workflow or DEFAULT_WORKFLOW,
    )
    await asyncio.to_thread(add)
    offline.runner.wake()


def check_offline(plan: CompiledPlan, catalog: Catalog) -> None:
    """Check that all datasets that a plan looks up can be read as of any time, those in `deps` of extractors included.

    Raises `InvalidInputError` if one of them has no offline index.
    """
    for step in plan.plan.steps:
        if isinstance(step, LookupStep):
            require_index(step.dataset, step.indexed, past=True)
        elif isinstance(step, PythonStep):
            for dataset in step.datasets:
                index = catalog.dataset(dataset).index
                if index is not None:
                    require_index(dataset, index, past=True)


def _rows(
    context: ServerContext, query_id: str, body: OfflineBody
) -> tuple[StoredRows | Place, tuple[str, bytes] | None]:
    """Return the rows of a request, and the object that they become if they came with it."""
    match body.input:
        case {"Pandas": dict(columns)}:
            _check_columns(columns, [*body.input_features, body.timestamp_column])
            return StoredRows(JSON_INPUT), (JSON_INPUT, orjson.dumps(columns))
        case {"S3": table}:
            files = _converted(table, _FILES)
            columns = files.feature_to_column_map or {}
            if columns and set(columns) != set(body.input_features):
                raise InvalidInputError(
                    f"input: feature_to_column_map has {', '.join(sorted(columns))}; it must have exactly the inputs: "
                    f"{', '.join(sorted(body.input_features))}"
                )
            return _place(context, query_id, files.s3_table, columns), None
        case _:
            raise InvalidInputError('input: {"Pandas": {column: values}} or {"S3": {"s3_table": …}} is expected')


def _place(context: ServerContext, query_id: str, table: _Table, columns: Mapping[str, str]) -> Place:
    access = table.db.db.access
    csv = table.format.csv if isinstance(table.format, _Csv) else _Delimited()
    name = "csv" if isinstance(table.format, _Csv) else table.format.lower()
    if name not in FORMATS:
        raise InvalidInputError(f"format: {name[:100]!r} isn't read; it is one of {', '.join(FORMATS)}")
    base = table.bucket if "://" in table.bucket else f"s3://{table.bucket}"
    url = f"{base.rstrip('/')}/{table.path_prefix.strip('/')}"
    context.deployment.offline.places.check(url, has_keys=access.creds is not None, role=access.role_arn)
    if name == "delta" and access.role_arn is not None:
        raise InvalidInputError("format: a table of Delta isn't read with role_arn; give access keys")
    return Place(
        url=url,
        format=name,
        delimiter=chr(csv.delimiter),
        headers=csv.headers,
        columns=dict(columns),
        role_arn=access.role_arn,
        credentials=None
        if access.creds is None
        else sealed(context.deployment.erasure.keyring, query_id, (access.creds.access_key, access.creds.secret_key)),
    )


def _converted(value: object, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(orjson.dumps(value))
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"input or s3_output: {error}") from error


def _check_columns(columns: Mapping[str, object], needed: Sequence[str]) -> None:
    for name in needed:
        if name not in columns:
            raise InvalidInputError(f"input: there is no column {name[:100]!r}; columns: {', '.join(columns)[:1000]}")
    lengths = {len(values) if isinstance(values, list) else -1 for values in columns.values()}
    if lengths == {0}:
        raise InvalidInputError("input: the frame has no rows")
    if len(lengths) > 1 or -1 in lengths:
        raise InvalidInputError("input: every column has to be a list of values, and all of one length")


def _check_arrow(body: bytes, needed: Sequence[str]) -> None:
    schema = checked_schema(body)
    for name in needed:
        if name not in schema.names:
            raise InvalidInputError(f"the body has no column {name[:100]!r}; columns: {', '.join(schema.names)[:1000]}")


def _listed(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


async def query_seen(context: ServerContext, request: Request[Any, Any], query_id: str) -> OfflineQuery:
    """Return a query of the request's branch that the caller may see.

    Raises:
        UnknownEntityError: The branch has no such query.
        ForbiddenError: The caller may not see it.
    """
    query = await asyncio.to_thread(context.deployment.offline.queries.get, query_id)
    if query.branch != request.branch:
        raise UnknownEntityError(f"there is no offline query {query_id[:100]!r} on branch {request.branch[:100]!r}")
    if not _may_see(request, query):
        raise ForbiddenError("another account asked this query, and this one may not read all data of the branch")
    return query


def _may_see(request: Request[Any, Any], query: OfflineQuery) -> bool:
    caller = request.caller
    return caller.account == query.account or caller.may_all(Mode.READ_DATA, query.branch)


def _shown(context: ServerContext, query: OfflineQuery) -> dict[str, Any]:
    return query.answer(*place_of(query, context.deployment.offline.objects.url))


async def _answered(context: ServerContext, request: Request[Any, Any], query_id: str) -> HttpResponse:
    return json_response(_shown(context, await query_seen(context, request, query_id)))


def _streamed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
