"""The handlers of the data plane: log, query, lookup, commit."""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from caraway.control import CommitService
from caraway.errors import CarawayError, InvalidInputError
from caraway.graph.wire import decode_commit
from caraway.ingest import IngestService, RequestKey
from caraway.ingest.table import json_type, position
from caraway.query import parse_instants
from caraway.server import metrics
from caraway.server.deployment import Deployment
from caraway.server.errors import status_of
from caraway.server.http import Request, Response, json_response

# A query of so many rows, or one that runs user code, would keep others waiting: it gets a thread.
INLINE_ROWS = 500
QUERY_THREADS = 4


class Api:
    """Answers requests for data and definitions."""

    def __init__(self, deployment: Deployment) -> None:
        """Serve what `deployment` runs."""
        self._deployment = deployment
        self._ingest = IngestService(deployment.writer, deployment.bootstrap_servers)
        self._commits = CommitService.connect(
            deployment.postgres_url, deployment.bootstrap_servers, partitions=deployment.partitions
        )
        self._threads = ThreadPoolExecutor(QUERY_THREADS, thread_name_prefix="query")

    async def commit(self, request: Request) -> Response:
        """`POST /commit`: definitions, as protobuf."""
        self._deployment.require_live()
        if not request.body:
            # No bytes are a valid message of protobuf: a commit that would empty the branch.
            raise InvalidInputError("the body is empty; a commit request is expected")
        given = decode_commit(request.body)
        wanted = replace(
            given,
            incremental=request.flag("incremental", default=given.incremental),
            preview=request.flag("preview", default=given.preview),
            backfill=request.flag("backfill", default=given.backfill),
        )
        result = await asyncio.to_thread(self._commits.commit, wanted)
        if not wanted.preview:
            # Whoever committed may log and query at once.
            await asyncio.to_thread(self._deployment.reload)
        return json_response({"summary": [f"{line}\n" for line in result.summary], "commit_id": result.commit_id})

    async def log(self, request: Request) -> Response:
        """`POST /log`: rows for a webhook."""
        live = self._deployment.require_live()
        body = request.json()
        key = request.headers.get("idempotency-key")
        parsed = None
        if key is not None:
            digest = hashlib.blake2b(request.body, digest_size=16).digest()
            parsed = RequestKey.parse(key, request.headers.get("caraway-elapsed-ms"), digest)
        report = await self._ingest.log(live.endpoints, body, parsed)
        return json_response(report.to_json(), report.status)

    async def query(self, request: Request) -> Response:
        """`POST /query`: features for rows of inputs."""
        live = self._deployment.require_live()
        body = _object(request.json())
        inputs, outputs = _names(body, "inputs"), _names(body, "outputs")
        workflow = metrics.FEATURE_COUNTS.workflow(_workflow(body))
        _check_logging(body)
        started = time.perf_counter()
        try:
            plan = live.queries.plan(inputs, outputs)
            data = _data(body)
            timestamps = _timestamps(body)
            rows = _rows(data)
            if rows > INLINE_ROWS or plan.runs_user_code:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._threads, partial(plan.run, data, timestamps))
            else:
                answer = plan.run(data, timestamps)
        except CarawayError as error:
            metrics.EXTRACT_ERRORS.labels(workflow, metrics.QUERY_TARGET, status_of(error)).inc()
            raise
        metrics.EXTRACT_LATENCY_OF(workflow, metrics.QUERY_TARGET).observe(time.perf_counter() - started)
        metrics.FEATURE_COUNTS.add(plan.output_names, workflow, rows)
        return json_response(answer)

    async def lookup(self, request: Request, dataset: str) -> Response:
        """`POST /dataset/{name}/lookup`: rows of a dataset by key."""
        live = self._deployment.require_live()
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
            found, data = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        else:
            found, data = look_up()
        return json_response({"found": found, "data": data})


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


def _rows(data: Sequence[object] | Mapping[str, object]) -> int:
    if isinstance(data, Mapping):
        return max((len(column) for column in data.values() if isinstance(column, list)), default=0)
    return len(data)


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
