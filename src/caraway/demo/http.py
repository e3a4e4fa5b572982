"""A connection to a server that takes very little time by itself, so that measured times are those of the server."""

import http.client
import time
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from caraway.client.discovery import find_server
from caraway.client.response import TOO_MANY, retry_after
from caraway.errors import RemoteError, UnavailableError

TIMEOUT_SECONDS = 60.0
# The most seconds for which a request is repeated while the server answers that it has too much to do (429).
LONGEST_WAIT_SECONDS = 180.0
# The pause in seconds if such an answer doesn't say how long to wait.
PAUSE_SECONDS = 1.0


class DemoConnection:
    """One connection to a server, for one thread."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Connect at the first request. If `url` is that of a stack on this machine, requests carry its token."""
        address = urlsplit(url)
        self._clock = clock
        self._sleep = sleep
        token = find_server(url).token
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._http = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Post `body` as JSON below `/api/v1` and return the JSON of the answer.

        Raises:
            RemoteError: The server refused the request, or still had too much to do after `LONGEST_WAIT_SECONDS`.
            UnavailableError: The server doesn't answer.
        """
        return self.post_bytes(path, orjson.dumps(body))

    def post_bytes(self, path: str, body: bytes) -> Any:
        """Post JSON that is already encoded; otherwise like `post`."""
        return self._ask("POST", path, body)

    def get(self, path: str) -> Any:
        """Return the JSON of a GET request; errors are those of `post`."""
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        started = self._clock()
        while True:
            try:
                return self._once(method, path, body)
            except RemoteError as error:
                pause = PAUSE_SECONDS if error.retry_after_s is None else error.retry_after_s
                if error.status != TOO_MANY or self._clock() - started + pause > LONGEST_WAIT_SECONDS:
                    raise
                self._sleep(pause)

    def _once(self, method: str, path: str, body: bytes | None) -> Any:
        try:
            self._http.request(method, f"/api/v1{path}", body, self._headers)
            answer = self._http.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise UnavailableError(f"the server doesn't answer: {error}") from error
        if answer.status != http.client.OK:
            raise RemoteError(
                f"{path} answered {answer.status}: {content[:500].decode()}",
                status=answer.status,
                retry_after_s=retry_after(answer.getheader("Retry-After")),
            )
        return orjson.loads(content)
