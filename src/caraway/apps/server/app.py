"""The RSGI application, which turns each request into an answer, also if the handler fails."""

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from functools import partial

import structlog
from granian._granian import RSGIProtocolClosed

from caraway.apps.server import metrics
from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.shares import TOKEN, Shares
from caraway.apps.server.access.sites import Sites, check_media_type
from caraway.apps.server.http.arrival import Proxies
from caraway.apps.server.http.body import Body
from caraway.apps.server.http.budget import SMALL_BYTES, Budget, Hold
from caraway.apps.server.http.connections import Connections
from caraway.apps.server.http.encoding import encoded
from caraway.apps.server.http.endpoints import Endpoint, Page, Router
from caraway.apps.server.http.errors import (
    CutBodyError,
    DeadlineError,
    InternalError,
    SlowBodyError,
    error_response,
    refusal,
    status_of,
)
from caraway.apps.server.http.messages import (
    DECODERS,
    Exchange,
    Headers,
    HttpResponse,
    Request,
    RsgiScope,
    json_response,
)
from caraway.apps.server.tracing.spans import TRACE, Trace, Tracer
from caraway.errors import BusyError, CarawayError, UnavailableError, shortened
from caraway.process.request_ids import HEADER, REQUEST_ID, accepted
from caraway.process.settings.server import ServerSettings
from caraway.state.permissions import ANYBODY, Caller

LOG = structlog.get_logger(__name__)

UNKNOWN_TARGET = "unknown"
REQUEST_SECONDS = 60.0
# The most bytes that all requests without a token hold together. A thousand of the largest sign-in forms fit.
STRANGERS_BYTES = 16 * 1024 * 1024
# The most bytes that all large answers hold together until their clients have read them. The HTTP server keeps unread
# bytes in memory. A single answer seldom has more than a tenth of this bound.
ANSWERS_BYTES = 512 * 1024 * 1024
ENDING = "the server ends; a change that the request asked for may have been made. Send the request again"
# An answer with more bytes than this is compressed in a thread, because in the event loop its compression would hold up
# all other requests.
LARGE_ANSWER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Bounds on requests: the time of each, the memory of all together, and the number of each caller.

    Requests for which no token is needed have a memory of their own, so that strangers can't take that of others. So
    have large answers, until their clients have read them. A client may take long to read, so that nobody's answers may
    fill this memory.
    """

    seconds: float = REQUEST_SECONDS
    budget: Budget = field(default_factory=Budget)
    strangers: Budget = field(default_factory=lambda: Budget(STRANGERS_BYTES))
    answers: Budget = field(default_factory=lambda: Budget(ANSWERS_BYTES, lends=False))
    shares: Shares = field(default_factory=Shares)

    @classmethod
    def of(cls, settings: ServerSettings) -> "RequestBounds":
        """Build the bounds from the settings."""
        return cls(
            seconds=settings.request_seconds,
            budget=Budget(settings.requests_memory_mb * 1024 * 1024),
            shares=Shares(settings.concurrency_per_token, settings.requests_per_second_per_token),
        )


class App:
    """The application that granian calls for each request."""

    def __init__(
        self,
        router: Router,
        gate: Gate,
        bounds: RequestBounds | None = None,
        *,
        sites: Sites | None,
        tracer: Tracer | None = None,
        proxies: Proxies | None = None,
        connections: Connections | None = None,
    ) -> None:
        """Answer requests that `gate` admits through the handlers that `router` finds.

        Args:
            router: Finds the handler of a request.
            gate: Checks tokens and the modes that they allow.
            bounds: Bounds on the time, the memory and the number of requests.
            sites: Refuses requests of other sites' web pages; None if another process has checked them already.
            tracer: Decides which requests are traced; None: none are.
            proxies: The proxies whose word on the way of a request is believed; None: nobody's is.
            connections: Learns on which connections callers have shown valid tokens, and where large answers are sent;
                None: neither has a bound.
        """
        self._connections = connections
        # The holds of large answers that their clients may not have read yet, by the address of the client.
        self._unread: dict[str, Hold] = {}
        self._router = router
        self._gate = gate
        self._tracer = tracer
        self._sites = sites
        self._proxies = Proxies() if proxies is None else proxies
        self._bounds = RequestBounds() if bounds is None else bounds

    async def __rsgi__(self, scope: RsgiScope, exchange: Exchange) -> None:
        """Answer a request."""
        started = time.perf_counter()
        request_id = accepted(scope.headers.get(HEADER))
        context = REQUEST_ID.set(request_id)
        self._proxies.note(scope)
        if self._unread:
            # The HTTP server passes on the next request of a connection once the kernel has the answer before.
            self._read(scope.client)
        trace = None if self._tracer is None else self._begin_trace(self._tracer, scope.headers)
        target, page, caller = UNKNOWN_TARGET, None, ANYBODY
        body = Body(scope.headers, exchange)
        try:
            endpoint, name = self._router.find(scope.method, scope.path)
            target, page = endpoint.target, endpoint.page
            headers = scope.headers if page is None else page.headers(scope.headers, scope.query_string)
            if self._sites is not None:
                self._sites.check(endpoint, headers)
            response, caller = await self._let_in(scope, headers, body, endpoint, name)
        except CarawayError as error:
            failure: CarawayError = error if status_of(error) != 500 else _unexpected(error, scope)
            response = _refusal(failure, scope, page)
        except asyncio.CancelledError:
            # A server that ends cancels the requests that are still under way; their clients get an answer, too.
            response = _refusal(UnavailableError(ENDING), scope, page)
        except Exception as error:  # noqa: BLE001 (every request gets an answer)
            response = _refusal(_unexpected(error, scope), scope, page)
        response = await _encoded(response, scope.headers.get("accept-encoding"))
        try:
            hold = self._hold(response, caller)
        except BusyError as error:
            response, hold = _refusal(error, scope, page), None
        # The further headers go into a new list, so that the list of the handler's response doesn't change.
        headers_sent = [*response.headers, (HEADER, request_id)]
        if not body.complete and not await body.skip():
            # The HTTP server closes such a connection. A client that isn't told would send its next request on it, and
            # get no answer.
            headers_sent.append(("connection", "close"))
        try:
            exchange.response_bytes(response.status, headers_sent, response.body)
        except RSGIProtocolClosed:
            LOG.debug("a client went away before its answer", target=target)
        finally:
            if hold is not None and self._connections is not None:
                self._unread[scope.client] = hold
                in_loop = asyncio.get_running_loop().call_soon_threadsafe
                self._connections.follow(scope.client, partial(in_loop, self._read, scope.client, hold))
            REQUEST_ID.reset(context)
            if trace is not None:
                TRACE.set(None)
                trace.end(response.status, target, request_id)
        metrics.REQUESTS.count(target, response.status, time.perf_counter() - started)

    async def _let_in(
        self, scope: RsgiScope, headers: Headers, body: Body, endpoint: Endpoint, name: str
    ) -> tuple[HttpResponse, Caller]:
        """Return the answer to a caller who is admitted, and the caller."""
        # The gate comes before the body is read: a caller who isn't admitted must not fill the memory with bodies.
        caller = await self._gate.let_in(endpoint, headers)
        self._note_known(scope.client, caller)
        if endpoint.takes_body:
            check_media_type(endpoint, headers)
        # A probe isn't counted against the limits of a caller (`Shares`), because a load balancer must learn the
        # server's health at any time.
        if endpoint.probe:
            return await self._answer(scope, headers, body, endpoint, name, caller=caller), caller
        self._bounds.shares.enter(caller.token_id)
        try:
            return await self._answer(scope, headers, body, endpoint, name, caller=caller), caller
        finally:
            self._bounds.shares.leave(caller.token_id)

    def _hold(self, response: HttpResponse, caller: Caller) -> Hold | None:
        """Hold memory for a large answer. Raises `BusyError` if too many answers wait to be read."""
        if self._connections is None or len(response.body) <= SMALL_BYTES:
            return None
        hold = Hold(self._bounds.answers, caller.token_id)
        hold.grow(len(response.body))
        return hold

    def _read(self, client: str, hold: Hold | None = None) -> None:
        """Return the memory of an answer that a client has read: of this one, or of the last one."""
        if hold is None or self._unread.get(client) is hold:
            hold = self._unread.pop(client, hold)
        if hold is not None:
            hold.release()

    def _note_known(self, client: str, caller: Caller) -> None:
        """Note that a connection is one of a caller who has shown a valid token."""
        if self._connections is not None and caller.token_id:
            self._connections.know(client)

    @staticmethod
    def _begin_trace(tracer: Tracer, headers: Headers) -> Trace | None:
        traceparent = headers.get("traceparent")
        trace = tracer.begin(traceparent, None if traceparent is None else headers.get("tracestate"))
        if trace is not None:
            TRACE.set(trace)
        return trace

    async def _answer(
        self, scope: RsgiScope, headers: Headers, body: Body, endpoint: Endpoint, name: str, *, caller: Caller
    ) -> HttpResponse:
        """Read the body and run the handler, both together within the deadline.

        Raises:
            SlowBodyError: The body isn't complete at the deadline.
            CutBodyError: The client has ended the body before it was complete.
            DeadlineError: The handler isn't done in time. Work that it left to a thread goes on to its end.
        """
        budget = self._bounds.strangers if endpoint.permission.public else self._bounds.budget
        hold = Hold(budget, caller.token_id)
        TOKEN.set(caller.token_id)
        try:
            async with asyncio.timeout(self._bounds.seconds) as limit:
                content = await body.read(hold, endpoint.form_bytes) if endpoint.takes_body else b""
                request = Request(
                    endpoint.method,
                    scope.path,
                    scope.query_string,
                    headers,
                    content,
                    caller,
                    hold,
                    endpoint.body,
                    endpoint.parameters,
                )
                return await self._gate.pass_on(endpoint, request, lambda: endpoint.respond(request, name))
        except TimeoutError:
            if not limit.expired():
                raise
            if endpoint.takes_body and not body.complete:
                raise SlowBodyError(f"the body wasn't complete after {self._bounds.seconds:g} s") from None
            raise DeadlineError(
                f"the request took more than {self._bounds.seconds:g} s (server.request_seconds); "
                "what it was to change may have been changed"
            ) from None
        except RSGIProtocolClosed:
            raise CutBodyError("the body ended before it was complete, or its chunks are malformed") from None
        finally:
            hold.release()


async def _encoded(response: HttpResponse, encodings: str | None) -> HttpResponse:
    """Return an answer in one of the encodings that the client takes."""
    if encodings is not None and len(response.body) > LARGE_ANSWER_BYTES:
        return await asyncio.get_running_loop().run_in_executor(DECODERS, encoded, response, encodings)
    return encoded(response, encodings)


def _refusal(error: CarawayError, scope: RsgiScope, page: Page | None) -> HttpResponse:
    if page is not None:
        return page.refusal(error, scope.path, scope.query_string, scope.headers)
    if isinstance(error, InternalError):
        return json_response(refusal(str(error), error.code, id=error.number), 500)
    return error_response(error)


def _unexpected(error: Exception, scope: RsgiScope) -> InternalError:
    """Log an unexpected error under a number, and return an error for the client that has only that number."""
    number = uuid.uuid4().hex[:8]
    LOG.error("a request failed", id=number, method=scope.method, path=shortened(scope.path), exc_info=error)
    return InternalError(number)
