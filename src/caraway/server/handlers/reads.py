"""The handlers that read: query and lookup."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from caraway.errors import CarawayError, InvalidInputError, TooLargeError
from caraway.ingest.json_text import MAX_VALUES, VALUE_BYTES
from caraway.ingest.table import json_type
from caraway.query import CompiledPlan, StoredColumns, parse_instants
from caraway.server.access.limits import AccessLimits
from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.arrow import arrow_response, decoded_bytes, read_columns
from caraway.server.handlers.queries import INLINE_ROWS, Given, Keep, Queries, check_rows, count_failure
from caraway.server.http.messages import DECODERS, HttpResponse, Request, in_decoder, json_response, media_type
from caraway.server.metrics import DEFAULT_WORKFLOW
from caraway.server.served_graph import ServedGraph
from caraway.server.upkeep.served import Origin

JSON = "application/json"
# The column of a body in Arrow that holds the instant of each row.
TIMESTAMPS = "timestamps"
# Bound on the characters of a workflow's name, which labels metrics and each row that is kept.
MAX_WORKFLOW = 100
# Bound on the features or fields of one request, because plans are kept by these names.
MAX_NAMES = 5_000
# Bound on the characters of a feature's or field's name; names in Python and of columns are far shorter.
MAX_NAME = 1_000


class Reads:
    """Answers requests for features and rows."""

    def __init__(self, limits: AccessLimits, queries: Queries, keep: Callable[..., None]) -> None:
        """Read what `limits` lets callers see, through `queries`; `keep` is called with queries that are to be kept."""
        self._limits = limits
        self._queries = queries
        self._keep_served = keep

    async def query(self, request: Request) -> HttpResponse:
        """Answer `POST /query`: features for rows of inputs."""
        if media_type(request.headers.get("content-type")) == ARROW:
            return await self._query_arrow(request)
        served = self._limits.seen(request)
        body = object_of(await request.json())
        inputs, outputs = names_of(body, "inputs"), names_of(body, "outputs")
        workflow = checked_workflow(body.get("workflow"))
        rate = _kept_share(body)
        plan = _planned(served, inputs, outputs, workflow)
        given = await given_of(request, body)
        keep = self._keep(served, request.branch, workflow, rate)
        if media_type(request.headers.get("accept")) == ARROW:
            return _arrow(plan, await self._queries.columns(plan, given, workflow, keep))
        return json_response(await self._queries.answer(plan, given, workflow, keep))

    async def _query_arrow(self, request: Request) -> HttpResponse:
        """Answer a query whose body is an Arrow IPC stream of the inputs; other parameters are in the query string."""
        served = self._limits.seen(request)
        wanted = request.parameters()
        outputs = [name for name in wanted.get("outputs", "").split(",") if name]
        if not outputs:
            raise InvalidInputError("with a body in Arrow the outputs stand in the query string: ?outputs=Set.a,Set.b")
        data: dict[str, Any] = await self._columns(request)
        at = data.pop(TIMESTAMPS, None)
        workflow = checked_workflow(wanted.get("workflow"))
        rate = _kept_share({"log": request.flag("log", default=False), "sampling_rate": _number(wanted)})
        plan = _planned(served, list(data), outputs, workflow)
        given = Given(data, None if at is None else await instants(at), is_large=request.is_large)
        keep = self._keep(served, request.branch, workflow, rate)
        if media_type(request.headers.get("accept")) == JSON:
            return json_response(await self._queries.answer(plan, given, workflow, keep))
        return _arrow(plan, await self._queries.columns(plan, given, workflow, keep))

    async def _columns(self, request: Request) -> dict[str, Any]:
        """Return the columns of a body in Arrow; a large body is read in a thread."""
        body = request.body
        if request.is_large:
            size = await in_decoder(decoded_bytes, body)
            # A number takes eight times as many bytes in Python as in Arrow.
            request.hold.grow(size + min(8 * size, MAX_VALUES * VALUE_BYTES))
        return dict(await in_decoder(read_columns, body) if request.is_large else read_columns(body))

    def _keep(self, served: ServedGraph, branch: str, workflow: str | None, rate: float) -> Keep | None:
        if not rate:
            return None
        origin = Origin(branch=branch, commit=served.version, workflow=workflow or DEFAULT_WORKFLOW, rate=rate)
        return partial(self._keep_served, origin=origin)

    async def lookup(self, request: Request, dataset: str) -> HttpResponse:
        """Answer `POST /dataset/{name}/lookup`: rows of a dataset by key."""
        served = self._limits.seen(request)
        body = object_of(await request.json())
        keys = body.get("keys")
        if not isinstance(keys, list) or not all(isinstance(row, dict) for row in keys):
            raise InvalidInputError('keys is expected to be a list of objects, such as [{"user": 1}]')
        timestamps = body.get("timestamps")
        if timestamps is not None and not isinstance(timestamps, list):
            raise InvalidInputError(
                f"timestamps is {json_type(timestamps)}; a list is expected, an instant for each row"
            )
        fields = names_of(body, "fields") if body.get("fields") is not None else []
        look_up = partial(served.queries.lookup, dataset, keys, fields, timestamps)
        if len(keys) > INLINE_ROWS or request.is_large or served.queries.asks_others:
            check_rows(len(keys), len(fields) or 1)
            found, data = await self._queries.in_thread(look_up)
        else:
            found, data = look_up()
        return json_response({"found": found, "data": data})


def _planned(served: ServedGraph, inputs: Sequence[str], outputs: Sequence[str], workflow: str | None) -> CompiledPlan:
    try:
        return served.queries.plan(inputs, outputs)
    except CarawayError as error:
        count_failure(error, workflow)
        raise


def _arrow(plan: CompiledPlan, columns: StoredColumns) -> HttpResponse:
    return arrow_response(columns, [(column.name, column.dtype) for column in plan.plan.outputs])


def object_of(body: object) -> Mapping[str, Any]:
    """Return a body that is an object.

    Raises:
        InvalidInputError: The body is no object.
    """
    if not isinstance(body, dict):
        raise InvalidInputError(f"the body is {json_type(body)}; an object is expected")
    return body


def names_of(body: Mapping[str, object], name: str) -> Sequence[str]:
    """Return a member that is a list of names.

    Raises:
        InvalidInputError: The member is missing, or no list of names.
    """
    value = body.get(name)
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        found = "is missing" if name not in body else f"is {json_type(value)}"
        raise InvalidInputError(f"{name} {found}; a list of names is expected")
    if len(value) > MAX_NAMES:
        raise TooLargeError(f"{name} has {len(value):,} names; at most {MAX_NAMES:,} are possible")
    if max(map(len, value), default=0) > MAX_NAME:
        raise InvalidInputError(f"{name} holds a name of more than {MAX_NAME:,} characters, which nothing has")
    return value


async def given_of(request: Request, body: Mapping[str, object]) -> Given:
    """Return the rows or columns of a query, and their instants.

    Raises:
        InvalidInputError: The rows are missing, or of another form.
        TooLargeError: There are too many rows.
    """
    return Given(await data_of(request, body), await timestamps_of(body), is_large=request.is_large)


async def data_of(request: Request, body: Mapping[str, object]) -> Sequence[object] | Mapping[str, object]:
    """Return the rows or columns of a query.

    Raises:
        InvalidInputError: The rows are missing, or of another form.
        TooLargeError: There are too many rows.
    """
    data = body.get("data")
    if isinstance(data, str):
        try:
            data = await request.values(data.encode())
        except InvalidInputError as error:
            raise InvalidInputError(f"data is text that {error}") from error
    if not isinstance(data, (list, dict)):
        found = "missing" if "data" not in body else json_type(data)
        raise InvalidInputError(
            f"data is {found}; a list of objects (rows) or an object of lists (columns) is expected"
        )
    return data


async def timestamps_of(body: Mapping[str, object]) -> list[int] | None:
    """Return the instants of a query's rows, None if the query is as of now.

    Raises:
        InvalidInputError: The member holds other values than instants.
    """
    timestamps = body.get("timestamps")
    if timestamps is None:
        return None
    if not isinstance(timestamps, list):
        raise InvalidInputError(f"timestamps is {json_type(timestamps)}; a list is expected, an instant for each row")
    return await instants(timestamps)


async def instants(values: Sequence[object]) -> list[int]:
    """Return the instants that a request names; many are read in a thread.

    Raises:
        InvalidInputError: A value isn't an instant.
        TooLargeError: There are too many instants.
    """
    if len(values) <= INLINE_ROWS:
        return parse_instants(values)
    check_rows(len(values))
    return await asyncio.get_running_loop().run_in_executor(DECODERS, parse_instants, values)


def checked_workflow(workflow: object) -> str | None:
    """Return the name of a workflow, None if none is given.

    Raises:
        InvalidInputError: The name is no string, or too long.
    """
    if workflow is None:
        return None
    if not isinstance(workflow, str):
        raise InvalidInputError(f"workflow is {json_type(workflow)}; a string is expected")
    if len(workflow) > MAX_WORKFLOW:
        raise InvalidInputError(f"workflow has {len(workflow):,} characters; at most {MAX_WORKFLOW} are possible")
    return workflow


def _kept_share(body: Mapping[str, object]) -> float:
    """Return the share of rows to keep, 0 if the member `log` isn't true."""
    log, rate = body.get("log"), body.get("sampling_rate")
    if log is not None and not isinstance(log, bool):
        raise InvalidInputError(f"log is {json_type(log)}; true or false is expected")
    if rate is None:
        rate = 1.0
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise InvalidInputError("sampling_rate is expected to be a number from 0 to 1")
    return float(rate) if log else 0.0


def _number(parameters: Mapping[str, str]) -> object:
    """Return the query parameter `sampling_rate` as a number, or as the text that it is, which is refused later."""
    text = parameters.get("sampling_rate")
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
