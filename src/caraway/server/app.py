"""The RSGI application: from a request to an answer, whatever happens on the way."""

import asyncio
import time
import uuid

import structlog

from caraway.errors import CarawayError
from caraway.server import metrics
from caraway.server.access.gate import Gate
from caraway.server.http.body import read_body
from caraway.server.http.encoding import encoded
from caraway.server.http.errors import SlowBodyError, error_response, status_of
from caraway.server.http.messages import Exchange, Headers, Request, Response, Scope, json_response
from caraway.server.http.routes import Router

LOG = structlog.get_logger(__name__)

UNKNOWN_TARGET = "unknown"
BODY_SECONDS = 30.0


class App:
    """What granian calls for each request."""

    def __init__(self, router: Router, gate: Gate) -> None:
        """Answer through `router` whom `gate` lets in."""
        self._router = router
        self._gate = gate

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Answer a request."""
        started = time.perf_counter()
        target = UNKNOWN_TARGET
        try:
            route, name = self._router.find(scope.method, scope.path)
            target = route.target
            headers = scope.headers
            # Before the body: nobody who isn't let in may fill the memory.
            caller = self._gate.admit(target, headers)
            body = await _body(headers, exchange) if route.method != "GET" else b""
            request = Request(route.method, scope.path, scope.query_string, headers, body, caller)
            response = await self._gate.pass_on(target, request, lambda: route.answer(request, name))
        except CarawayError as error:
            response = error_response(error) if status_of(error) != 500 else _unexpected(error, scope)
        except Exception as error:  # noqa: BLE001 (the last resort: whoever asks gets an answer)
            response = _unexpected(error, scope)
        response = encoded(response, scope.headers.get("accept-encoding"))
        exchange.response_bytes(response.status, response.headers, response.body)
        metrics.REQUESTS_OF(target, response.status).inc()
        metrics.LATENCY_OF(target).observe(time.perf_counter() - started)


async def _body(headers: Headers, exchange: Exchange) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await read_body(headers, exchange)
    except TimeoutError:
        raise SlowBodyError(f"the body wasn't complete after {BODY_SECONDS:g} s") from None


def _unexpected(error: Exception, scope: Scope) -> Response:
    """Log an error that nobody raised on purpose under a number, and tell the client that number only."""
    number = uuid.uuid4().hex[:8]
    LOG.error("a request failed", id=number, method=scope.method, path=scope.path, exc_info=error)
    return json_response(
        {
            "err_msg": f"the server failed to answer; its log tells why under the id {number}",
            "code": "internal",
            "id": number,
        },
        500,
    )
