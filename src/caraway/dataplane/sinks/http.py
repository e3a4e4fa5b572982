"""The writer of HTTP servers: it posts envelopes, each at least once."""

import logging
import ssl
from collections.abc import Mapping, Sequence

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from caraway.dataplane.sinks.changes import Change
from caraway.dataplane.sinks.envelopes import Envelopes
from caraway.dataplane.sinks.writer import AT_LEAST_ONCE, Batch, Refusal, Resolve, RetryLaterError, SignIn, Writing
from caraway.errors import CommitError, UnavailableError, shortened
from caraway.graph.connectors import HTTPConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import HTTPSystem

# A request has at most this many changes, if the sink has no limit of its own.
LIMIT = 100
# The body of a request has at most about this many bytes, unless a single change has more: servers commonly refuse
# bodies above a megabyte.
REQUEST_BYTES = 1_000_000
TIMEOUT_S = 10.0
# A request is tried at most this many times while the server refuses it or can't answer it, with pauses that grow from
# the first number up to the second one. If the server still can't answer it, the worker waits longer, and goes on with
# the same request.
ATTEMPTS = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
# The longest pause that a server can ask for by the header Retry-After.
MOST_ASKED_S = 60.0
TOO_MANY_REQUESTS = 429

# By default httpx2 logs each request with its address, which may be a secret.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class _BusyError(Exception):
    """The server can't take a request now."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class _RefusedError(Exception):
    """The server refuses a request."""


class HTTPWriter:
    """Posts changes to an endpoint, in the order of each partition."""

    guarantee = AT_LEAST_ONCE
    remembers = False

    def __init__(self, writing: Writing) -> None:
        """Prepare. Raises `UnavailableError` if a secret can't be looked up, or the certificate isn't one."""
        connector = writing.plan.sink.connector
        assert isinstance(connector, HTTPConnector)  # noqa: S101 (the planner chooses the writer)
        self._writing = writing
        self._envelopes = Envelopes(writing.plan, writing.branch, writing.product)
        self._limit = connector.limit or LIMIT
        self._path = "/" + connector.endpoint.lstrip("/")
        try:
            self._client = client_of(connector, writing.sign_in.resolve)
        except CommitError as error:
            raise UnavailableError(str(error)) from error

    def positions(self) -> Mapping[int, int]:
        """Return nothing, since the server keeps no positions."""
        return {}

    def write(self, batch: Batch) -> None:
        """Post changes; see `SinkWriter.write`."""
        while batch.sent < len(batch.changes):
            some, body = self._request(batch.changes[batch.sent :])
            try:
                self._post(body)
            except _RefusedError as error:
                self._writing.refuse([Refusal(change, str(error)) for change in some])
            except _BusyError as error:
                raise RetryLaterError(str(error)) from None
            batch.sent += len(some)

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def _request(self, changes: Sequence[Change]) -> tuple[Sequence[Change], bytes]:
        """Return the changes of the next request, and its body."""
        values: list[bytes] = []
        size = 0
        for change in changes[: self._limit]:
            value = self._envelopes.value(change)
            size += len(value) + 1
            if values and size > REQUEST_BYTES:
                break
            values.append(value)
        return changes[: len(values)], b"[" + b",".join(values) + b"]"

    def _post(self, body: bytes) -> None:
        attempts = Retrying(
            retry=retry_if_exception_type((_BusyError, _RefusedError)),
            stop=stop_after_attempt(ATTEMPTS),
            wait=_wait,
            sleep=self._pause,
            reraise=True,
        )
        attempts(self._try, body)

    def _pause(self, seconds: float) -> None:
        self._writing.pause(seconds)

    def _try(self, body: bytes) -> None:
        if not self._writing.keep():
            raise UnavailableError("another server writes it now")
        try:
            answer = self._client.post(self._path, content=body)
        except httpx2.HTTPError as error:
            raise _BusyError(f"the server doesn't answer ({type(error).__name__})") from None
        if answer.is_success:
            return
        said = shortened(" ".join(answer.text.split()))
        reason = f"the server answers {answer.status_code}" + (f": {said}" if said else "")
        if answer.status_code == TOO_MANY_REQUESTS or not answer.is_client_error:
            raise _BusyError(reason, _asked_s(answer))
        raise _RefusedError(reason)


_EXPONENTIAL = wait_exponential_jitter(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S, jitter=FIRST_PAUSE_S)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return max(_EXPONENTIAL(state), error.after_s if isinstance(error, _BusyError) else 0.0)


def _asked_s(answer: httpx2.Response) -> float:
    """Return the pause that an answer asks for, in seconds; 0 if it asks for none, or by a date."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), MOST_ASKED_S) if text.isascii() and text.isdigit() else 0.0


def client_of(connector: HTTPConnector, resolve: Resolve) -> httpx2.Client:
    """Return a client of the server of a sink, which verifies its certificate.

    Raises:
        CommitError: The address or the certificate can't be used.
        UnavailableError, UnknownEntityError: A secret can't be looked up.
    """
    system = connector.system
    assert isinstance(system, HTTPSystem)  # noqa: S101 (the planner refuses others)
    host, certificate = resolve(system.host), resolve(system.ca_cert)
    try:
        context = ssl.create_default_context(cadata=certificate)
    except (ssl.SSLError, ValueError):
        # The original error may quote the text. If the text isn't a certificate, it may be a secret.
        raise CommitError(f"ca_cert of HTTP {system.name} is no certificate in PEM") from None
    if not host.startswith(("https://", "http://")):
        raise CommitError(f"the host of HTTP {system.name} doesn't begin with https:// or http://")
    headers = {**dict(connector.headers), "Content-Type": "application/json"}
    try:
        return httpx2.Client(
            base_url=host, verify=context, headers=headers, timeout=TIMEOUT_S, trust_env=False, follow_redirects=False
        )
    except (httpx2.InvalidURL, ValueError):
        raise CommitError(f"the host of HTTP {system.name} is no address") from None


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that the server of a sink answers its health check with a status from 200 to 299.

    Raises:
        CommitError: It doesn't.
        UnavailableError, UnknownEntityError: A secret can't be looked up.
    """
    connector = plan.sink.connector
    assert isinstance(connector, HTTPConnector)  # noqa: S101 (the planner chooses the writer)
    assert isinstance(connector.system, HTTPSystem)  # noqa: S101
    path = "/" + connector.system.healthz.lstrip("/")
    with client_of(connector, sign_in.resolve) as client:
        try:
            status = client.get(path).status_code
        except httpx2.HTTPError as error:
            raise CommitError(
                f"its health check {path} can't be reached: {shortened(str(error)) or type(error).__name__}"
            ) from None
    if not 200 <= status <= 299:
        raise CommitError(f"its health check {path} answers {status}; from 200 to 299 is expected")
