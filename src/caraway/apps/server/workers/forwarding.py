"""Forwarding of requests other than queries to the writer."""

import time
from enum import StrEnum
from pathlib import Path

import httpx2

from caraway.apps.server.http.arrival import arrival
from caraway.apps.server.http.errors import DeadlineError
from caraway.apps.server.http.messages import BRANCH_HEADERS, HttpResponse, Request
from caraway.apps.server.tracing.spans import TRACE
from caraway.dataplane.index.storage.shared_counters import SharedCounters
from caraway.errors import UnavailableError
from caraway.process.request_ids import HEADER, REQUEST_ID

# The headers that pages of the console read.
BROWSERS = ("cookie", "origin", "sec-fetch-site")
# The headers that the writer's handlers read. A reader has decompressed the body, so its encoding isn't passed on.
PASSED_ON = (
    "authorization",
    "content-type",
    "accept",
    "idempotency-key",
    "caraway-elapsed-ms",
    *BRANCH_HEADERS,
    *BROWSERS,
)
PASSED_BACK = (
    "content-type",
    "retry-after",
    "allow",
    "location",
    "set-cookie",
    "cache-control",
    "content-security-policy",
    "referrer-policy",
    "x-content-type-options",
)
# The most seconds for which a reader waits: 2 for a connection to the writer, 60 for the answer, since a commit may
# take half a minute.
TIMEOUT = httpx2.Timeout(60.0, connect=2.0)
LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20)


class Forwarding(StrEnum):
    """The targets of forwarded requests in a reader's metrics; the writer counts them under their own targets."""

    READ = "passed_on"
    CHANGE = "passed_on_change"


class Forwarder:
    """Forwards requests to the writer."""

    def __init__(self, socket: Path, changes: SharedCounters) -> None:
        """Connect to the writer by its Unix socket; `changes` notifies all readers that something may have changed."""
        transport = httpx2.AsyncHTTPTransport(uds=str(socket), limits=LIMITS)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://writer", timeout=TIMEOUT)
        self._changes = changes

    async def answer(self, request: Request, name: str = "") -> HttpResponse:
        """Forward a request to the writer; once its answer is sent, all readers know what the request changed.

        Raises:
            UnavailableError: The writer is away. The request may have been done.
            DeadlineError: The writer takes too long.
        """
        del name
        headers = {header: value for header in PASSED_ON if (value := request.headers.get(header)) is not None}
        # The id of the request, which this process has made if the client gave none. Both processes log it.
        headers[HEADER] = REQUEST_ID.get()
        headers |= arrival().told
        if (trace := TRACE.get()) is not None:
            headers["traceparent"] = trace.traceparent
        # The writer is asked not to compress its answer: between processes of one machine that would only take time.
        headers["accept-encoding"] = "identity"
        path = f"{request.path}?{request.query_string}" if request.query_string else request.path
        try:
            found = await self._client.request(request.method, path, content=request.body, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise UnavailableError("the process that takes rows and definitions is away; try again") from error
        except httpx2.TimeoutException as error:
            raise DeadlineError(f"the request took more than {TIMEOUT.read:g} s") from error
        except httpx2.TransportError as error:
            raise UnavailableError(
                "the process that takes rows and definitions ended meanwhile; the request may have been carried out"
            ) from error
        if request.method != "GET" and not request.path.endswith("/log"):
            # The counter is set to the time instead of being increased. Two readers that increase it at once would set
            # it to the same value, and a reader that sees this value after the first change would miss the second one.
            self._changes[0] = time.time_ns()
        # A header may occur several times, as `Set-Cookie` does.
        passed_back = [(header, value) for header, value in found.headers.multi_items() if header in PASSED_BACK]
        return HttpResponse(found.status_code, passed_back, found.content)
