"""Passing on to the writer what isn't a query."""

import time
from enum import StrEnum
from pathlib import Path

import httpx

from caraway.errors import UnavailableError
from caraway.index.storage.shared_counters import SharedCounters
from caraway.server.http.errors import DeadlineError
from caraway.server.http.messages import BRANCH_HEADERS, HttpResponse, Request

# What the handlers look at. The body isn't compressed any more.
PASSED_ON = ("authorization", "content-type", "accept", "idempotency-key", "caraway-elapsed-ms", *BRANCH_HEADERS)
PASSED_BACK = ("content-type", "retry-after", "allow")
# A commit may wait for half a minute.
TIMEOUT = httpx.Timeout(60.0, connect=2.0)
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)


class Forwarding(StrEnum):
    """The targets of what is passed on, in the metrics of a reader; the writer counts what it really was."""

    READ = "passed_on"
    CHANGE = "passed_on_change"


class Forwarder:
    """Lets the writer answer requests."""

    def __init__(self, socket: Path, changes: SharedCounters) -> None:
        """Reach the writer by its Unix socket; `changes` tells all readers that something may have changed."""
        transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=LIMITS)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://writer", timeout=TIMEOUT)
        self._changes = changes

    async def answer(self, request: Request, name: str = "") -> HttpResponse:
        """Let the writer answer; whoever gets its answer finds all readers to know what it changed.

        Raises:
            UnavailableError: The writer is away. What was asked for may have been done.
            DeadlineError: It takes too long.
        """
        del name
        headers = {header: value for header in PASSED_ON if (value := request.headers.get(header)) is not None}
        # Between processes of one machine nothing is compressed.
        headers["accept-encoding"] = "identity"
        path = f"{request.path}?{request.query_string}" if request.query_string else request.path
        try:
            found = await self._client.request(request.method, path, content=request.body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise UnavailableError("the process that takes rows and definitions is away; try again") from error
        except httpx.TimeoutException as error:
            raise DeadlineError(f"the request took more than {TIMEOUT.read:g} s") from error
        except httpx.TransportError as error:
            raise UnavailableError(
                "the process that takes rows and definitions ended meanwhile; the request may have been carried out"
            ) from error
        if request.method != "GET" and not request.path.endswith("/log"):
            # Not one more than before: two readers may come from the same number.
            self._changes[0] = time.time_ns()
        passed_back = [(header, value) for header in PASSED_BACK if (value := found.headers.get(header)) is not None]
        return HttpResponse(found.status_code, passed_back, found.content)
