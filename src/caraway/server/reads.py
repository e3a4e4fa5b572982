"""The handlers that read: query and lookup."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from caraway.errors import CarawayError, InvalidInputError
from caraway.ingest.table import json_type, position
from caraway.query import CompiledPlan, StoredColumns, parse_instants
from caraway.server.arrow import CONTENT_TYPE as ARROW
from caraway.server.arrow import arrow_response, read_columns
from caraway.server.http import Request, Response, json_response, media_type
from caraway.server.live import Live, Serving
from caraway.server.queries import INLINE_ROWS, Queries, check_rows, count_failure

JSON = "application/json"
# The column of a body in Arrow that holds the instant of each row.
TIMESTAMPS = "timestamps"


class Reads:
    """Answers requests for features and rows."""

    def __init__(self, serving: Serving, queries: Queries) -> None:
        """Read what `serving` serves, through `queries`."""
        self._serving = serving
        self._queries = queries

    async def query(self, request: Request) -> Response:
        """`POST /query`: features for rows of inputs."""
        if media_type(request.headers.get("content-type")) == ARROW:
            return await self._query_arrow(request)
        live = self._serving.require_live(request.branch)
        body = _object(request.json())
        inputs, outputs = _names(body, "inputs"), _names(body, "outputs")
        workflow = _workflow(body)
        _check_logging(body)
        plan = _planned(live, inputs, outputs, workflow)
        data, at = _data(body), _timestamps(body)
        if media_type(request.headers.get("accept")) == ARROW:
            return _arrow(plan, await self._queries.columns(plan, data, at, workflow))
        return json_response(await self._queries.answer(plan, data, at, workflow))

    async def _query_arrow(self, request: Request) -> Response:
        """Answer a query whose body is an Arrow IPC stream of the inputs; the rest stands in the query string."""
        live = self._serving.require_live(request.branch)
        wanted = request.parameters()
        outputs = [name for name in wanted.get("outputs", "").split(",") if name]
        if not outputs:
            raise InvalidInputError("with a body in Arrow the outputs stand in the query string: ?outputs=Set.a,Set.b")
        data: dict[str, Any] = dict(read_columns(request.body))
        at = data.pop(TIMESTAMPS, None)
        workflow = wanted.get("workflow")
        plan = _planned(live, list(data), outputs, workflow)
        instants = None if at is None else parse_instants(at)
        if media_type(request.headers.get("accept")) == JSON:
            return json_response(await self._queries.answer(plan, data, instants, workflow))
        return _arrow(plan, await self._queries.columns(plan, data, instants, workflow))

    async def lookup(self, request: Request, dataset: str) -> Response:
        """`POST /dataset/{name}/lookup`: rows of a dataset by key."""
        live = self._serving.require_live(request.branch)
        body = _object(request.json())
        keys = body.get("keys")
        if not isinstance(keys, list) or not all(isinstance(row, dict) for row in keys):
            raise InvalidInputError('keys is expected to be a list of objects, such as [{"user": 1}]')
        timestamps = body.get("timestamps")
        if timestamps is not None and not isinstance(timestamps, list):
            raise InvalidInputError(
                f"timestamps is {json_type(timestamps)}; a list is expected, an instant for each row"
            )
        fields = _names(body, "fields") if body.get("fields") is not None else []
        look_up = partial(live.queries.lookup, dataset, keys, fields, timestamps)
        if len(keys) > INLINE_ROWS:
            check_rows(len(keys))
            found, data = await self._queries.in_thread(look_up)
        else:
            found, data = look_up()
        return json_response({"found": found, "data": data})


def _planned(live: Live, inputs: Sequence[str], outputs: Sequence[str], workflow: str | None) -> CompiledPlan:
    try:
        return live.queries.plan(inputs, outputs)
    except CarawayError as error:
        count_failure(error, workflow)
        raise


def _arrow(plan: CompiledPlan, columns: StoredColumns) -> Response:
    return arrow_response(columns, [(column.name, column.dtype) for column in plan.plan.outputs])


def _object(body: object) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise InvalidInputError(f"the body is {json_type(body)}; an object is expected")
    return body


def _names(body: Mapping[str, object], name: str) -> Sequence[str]:
    value = body.get(name)
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        found = "is missing" if name not in body else f"is {json_type(value)}"
        raise InvalidInputError(f"{name} {found}; a list of names is expected")
    return value


def _data(body: Mapping[str, object]) -> Sequence[object] | Mapping[str, object]:
    data = body.get("data")
    if isinstance(data, str):
        try:
            data = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"data is text that isn't JSON: {position(error)}") from error
    if not isinstance(data, (list, dict)):
        found = "missing" if "data" not in body else json_type(data)
        raise InvalidInputError(
            f"data is {found}; a list of objects (rows) or an object of lists (columns) is expected"
        )
    return data


def _timestamps(body: Mapping[str, object]) -> list[int] | None:
    timestamps = body.get("timestamps")
    if timestamps is None:
        return None
    if not isinstance(timestamps, list):
        raise InvalidInputError(f"timestamps is {json_type(timestamps)}; a list is expected, an instant for each row")
    return parse_instants(timestamps)


def _workflow(body: Mapping[str, object]) -> str | None:
    workflow = body.get("workflow")
    if workflow is not None and not isinstance(workflow, str):
        raise InvalidInputError(f"workflow is {json_type(workflow)}; a string is expected")
    return workflow


def _check_logging(body: Mapping[str, object]) -> None:
    log, rate = body.get("log"), body.get("sampling_rate")
    if log not in (None, False):
        if log is not True:
            raise InvalidInputError(f"log is {json_type(log)}; true or false is expected")
        raise InvalidInputError("log=true: this version doesn't keep the features that it serves; leave log out")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1):
        raise InvalidInputError("sampling_rate is expected to be a number from 0 to 1")
