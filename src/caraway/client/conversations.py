"""Conversations with a server, to query and to log, that `Client` and `AsyncClient` share: neither sends otherwise.

A conversation is a generator: it yields a `Call` to be sent, and is sent the answer or thrown the error; or it yields
seconds to pause. A connection runs it, and returns what it returns.
"""

import uuid
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
import pandas as pd

from caraway.client.arguments import Named, input_features, output_features, require_columns
from caraway.client.frames import (
    column_values,
    columns_of,
    instants,
    typed_array,
    typed_values,
    untyped_array,
    zone_remarks,
)
from caraway.client.response import TOO_MANY, Response
from caraway.client.results import LogReport, LogResult, none_taken, refused
from caraway.dtypes.types import DataType
from caraway.errors import InvalidInputError, RemoteError, UnavailableError
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset

# Seconds between two attempts to send a request that got no answer: the first pause, which doubles with each attempt,
# and the longest one.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# By default, the sending of a chunk of rows is repeated for at most this many seconds.
RETRY_TIMEOUT_S = 60.0

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Call:
    """A POST request with JSON.

    Attributes:
        path: The path below that of the API.
        content: The JSON.
        headers: The headers, beside those of the connection.
    """

    path: str
    content: bytes
    headers: Mapping[str, str]


Conversation = Generator[Call | float, Response, _Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments of a query, as `Client.query` has them."""

    inputs: Sequence[Feature | str]
    outputs: Sequence[Feature | Featureset | str]
    frame: pd.DataFrame | list[dict[str, Any]]
    log: bool = False
    workflow: str | None = None
    sampling_rate: float | None = None
    timestamps: "pd.Series[Any] | None" = None


def until_taken(
    path: str, body: object, headers: Mapping[str, str], *, retry_timeout: float, clock: Callable[[], float]
) -> Conversation[Response]:
    """Send a request, repeated for `retry_timeout` s while the server is down or in trouble.

    Each further attempt carries the time since the first one (`Caraway-Elapsed-Ms`): the server searches that far
    back for rows that it has accepted already, and drops them. The first attempt carries none, so the server
    needn't search; and neither does one after refusals with 429 alone, of which the server accepted nothing. After
    such a refusal the next attempt comes when the server wants it (`Retry-After`).

    Raises:
        RemoteError: The server refused, was still in trouble at the end, or wants the request only after it.
        UnavailableError: The server still didn't answer at the end.
    """
    content, started = orjson.dumps(body), clock()
    pauses = _pauses()
    # True once an attempt may have been accepted although its answer didn't come.
    accepted = False
    attempt = _json(headers)
    while True:
        try:
            return (yield Call(path, content, attempt))
        except (RemoteError, UnavailableError) as error:
            pause = next(pauses)
            status = error.status if isinstance(error, RemoteError) else None
            if isinstance(error, RemoteError) and status == TOO_MANY:
                pause = max(pause, error.retry_after_s or 0.0)
            else:
                accepted = True
            refusal = status is not None and status < 500 and status != TOO_MANY
            if refusal or clock() - started + pause > retry_timeout:
                raise
        yield pause
        if accepted:
            attempt = {**attempt, "Caraway-Elapsed-Ms": str(int((clock() - started) * 1_000))}


def query_as_frame(asked: Asked, headers: Mapping[str, str]) -> Conversation[pd.DataFrame]:
    """Ask for features; return a frame with a column for each."""
    wanted = output_features(asked.outputs, "query")
    answer = yield from _answer(asked, wanted, headers)
    return pd.DataFrame(_columns(answer, wanted, typed_array, untyped_array), copy=False)


def query_rows(asked: Asked, headers: Mapping[str, str]) -> Conversation[list[dict[str, Any]]]:
    """Ask for features; return a dict for each row."""
    wanted = output_features(asked.outputs, "query")
    answer = yield from _answer(asked, wanted, headers)
    columns = _columns(answer, wanted, typed_values, list)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def log_rows(
    webhook: str,
    endpoint: str,
    frame: pd.DataFrame,
    headers: Mapping[str, str],
    *,
    batch_size: int,
    retry_timeout: float,
    strict: bool,
    clock: Callable[[], float],
) -> Conversation[LogResult | None]:
    """Send the rows of a frame in chunks; see `Client.log`."""
    if batch_size < 1:
        raise InvalidInputError(f"log: batch_size is 1 or more, not {batch_size}")
    if not len(frame):
        print("log: the frame has no rows, nothing is sent")  # noqa: T201 (part of the API)
        return None
    data, remarks = columns_of(frame), zone_remarks(frame)
    report = LogReport(webhook, endpoint, remarks)
    for remark in remarks:
        # The warning is shown at the line that calls `log` of a client, which has a connection run this.
        warnings.warn(remark, stacklevel=4)
    for start in range(0, len(frame), batch_size):
        chunk = {name: values[start : start + batch_size] for name, values in data.items()}
        body = {"webhook": webhook, "endpoint": endpoint, "data": chunk}
        sent = {**headers, "Idempotency-Key": str(uuid.uuid4())}
        try:
            response = yield from until_taken("/log", body, sent, retry_timeout=retry_timeout, clock=clock)
        except (RemoteError, UnavailableError) as error:
            refusal = none_taken(error)
            if refusal is None:
                error.add_note(
                    f"Rows {start} to {len(frame) - 1} of the frame weren't logged; before: {report.result()}"
                )
                raise
            response = refusal
        report.add(start, min(batch_size, len(frame) - start), response.json(), response)
    result = report.result()
    if strict and result.rejected:
        raise refused(result)
    return result


def _answer(asked: Asked, wanted: Named, headers: Mapping[str, str]) -> Conversation[dict[str, list[Any]]]:
    """Return the columns that the server answers to a query; nothing, unasked, if no row or feature is wanted."""
    names = list(input_features(asked.inputs, "query"))
    frame = require_columns(asked.frame, names, "query")
    if asked.sampling_rate is not None and not 0 <= asked.sampling_rate <= 1:
        raise InvalidInputError(f"query: sampling_rate is a share from 0 to 1, not {asked.sampling_rate}")
    if not wanted or not len(frame):
        return {}
    body: dict[str, Any] = {
        "inputs": names,
        "outputs": list(wanted),
        "data": {name: column_values(frame[name]) for name in names},
        "log": asked.log,
    }
    optional_items = {"workflow": asked.workflow, "sampling_rate": asked.sampling_rate}
    body |= {name: value for name, value in optional_items.items() if value is not None}
    if asked.timestamps is not None:
        body["timestamps"] = instants(asked.timestamps, len(frame))
    response = yield Call("/query", orjson.dumps(body), _json(headers))
    answer: dict[str, list[Any]] = response.json()
    return answer


def _columns(
    answer: dict[str, list[Any]],
    wanted: Named,
    typed: Callable[[Sequence[Any], DataType, str], Any],
    untyped: Callable[[Sequence[Any]], Any],
) -> dict[str, Any]:
    """Return the columns of an answer, which two functions make: one for features of known types, one for others."""
    columns: dict[str, Any] = {}
    for name, dtype in wanted.items() if answer else ():
        if dtype is not None:
            columns[name] = typed(answer[name], dtype, name)
            continue
        # A featureset's name stands for all of its features, in the server's order.
        names = [name] if name in answer else [found for found in answer if found.startswith(f"{name}.")]
        for found in names:
            if found not in columns:
                columns[found] = untyped(answer[found])
    return columns


def _json(headers: Mapping[str, str]) -> dict[str, str]:
    return {"Content-Type": "application/json", **headers}


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_S)
