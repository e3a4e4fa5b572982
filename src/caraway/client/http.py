"""Requests to a Caraway server: one connection kept alive, errors as exceptions, retries where they are safe."""

import time
from collections.abc import Callable, Iterator, Mapping

import httpx
import orjson

from caraway.client.response import TOO_MANY, V1_API, Response, no_answer, refusal
from caraway.errors import RemoteError, UnavailableError
from caraway.process.authorities import authorities

# Time limits of a request, in seconds. They are long enough for a server that is busy with a commit. They don't delay
# the error if the server's process is down, since its machine then refuses the connection at once.
TIMEOUT = httpx.Timeout(600.0)
COMMIT_TIMEOUT = httpx.Timeout(300.0)

# Seconds between two attempts to send a request that got no answer: the first pause, which doubles with each attempt,
# and the longest one.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Connection:
    """Requests to one server, as one user.

    Each raises `RemoteError` if the server refuses it, and `UnavailableError` if the server doesn't answer.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The path of the URL is dropped, as in Fennel's client: the paths of requests begin at the server's root.
        base = httpx.URL(url).join("/")
        self._http = httpx.Client(
            base_url=base, headers=headers, timeout=TIMEOUT, transport=transport, verify=authorities()
        )
        self._clock = clock
        self._sleep = sleep

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str | None] | None = None,
        body: object = None,
    ) -> Response:
        """Send a request of any method, with a JSON body if there is one, and return the answer.

        Parameters that are None aren't sent.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        if body is None:
            return self._checked(path, b"", headers, method=method, params=given)
        sent = {"Content-Type": "application/json", **headers}
        return self._checked(path, orjson.dumps(body), sent, method=method, params=given)

    def post_bytes(self, path: str, body: bytes, headers: Mapping[str, str], params: Mapping[str, str]) -> Response:
        """Send a POST request with bytes, with the time limit of a commit, and return the answer."""
        sent = {"Content-Type": "application/octet-stream", **headers}
        return self._checked(path, body, sent, params=params, timeout=COMMIT_TIMEOUT)

    def post_until_taken(
        self, path: str, body: object, headers: Mapping[str, str], *, retry_timeout: float
    ) -> Response:
        """Send a POST request with JSON, repeated for `retry_timeout` s while the server is down or in trouble.

        Each further attempt carries the time since the first one (`Caraway-Elapsed-Ms`): the server searches that far
        back for rows that it has accepted already, and drops them. The first attempt carries none, so the server
        needn't search; and neither does one after refusals with 429 alone, of which the server accepted nothing. After
        such a refusal the next attempt comes when the server wants it (`Retry-After`).

        Raises:
            RemoteError: The server refused, was still in trouble at the end, or wants the request only after it.
            UnavailableError: The server still didn't answer at the end.
        """
        content, started = orjson.dumps(body), self._clock()
        pauses = _pauses()
        # True once an attempt may have been accepted although its answer didn't come.
        accepted = False
        attempt = {"Content-Type": "application/json", **headers}
        while True:
            try:
                return self._checked(path, content, attempt)
            except (RemoteError, UnavailableError) as error:
                pause = next(pauses)
                status = error.status if isinstance(error, RemoteError) else None
                if isinstance(error, RemoteError) and status == TOO_MANY:
                    pause = max(pause, error.retry_after_s or 0.0)
                else:
                    accepted = True
                refused = status is not None and status < 500 and status != TOO_MANY
                if refused or self._clock() - started + pause > retry_timeout:
                    raise
                self._sleep(pause)
                if accepted:
                    attempt["Caraway-Elapsed-Ms"] = str(int((self._clock() - started) * 1_000))

    def _checked(
        self,
        path: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        method: str = "POST",
        params: Mapping[str, str] | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> Response:
        try:
            answer = self._http.request(
                method, V1_API + path, content=content, headers=headers, params=params, timeout=timeout
            )
        except httpx.TransportError as error:
            raise no_answer(self._url, error) from error
        response = Response(answer.status_code, answer.headers, answer.content)
        if response.status_code != httpx.codes.OK:
            raise refusal(response, f"{method} {path}")
        return response


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_S)
