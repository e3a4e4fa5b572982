"""Requests to the server: one kept connection, clear errors, retries where they are safe."""

import time
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from caraway.client.response import Response
from caraway.errors import RemoteError, UnavailableError

V1_API = "/api/v1"
BRANCH_HEADER = "X-CARAWAY-BRANCH"
OK = 200
# What a proxy or a restarting server answers while a later try may succeed.
RETRYABLE = frozenset({429, 502, 503, 504})
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
REQUEST_TIMEOUT_SECONDS = 600.0


class Transport:
    """Talks to one server for one client."""

    def __init__(self, url: str, token: str) -> None:
        """Prepare for `url`; nothing is sent yet. An empty token sends no authorisation."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url
        self._http = httpx.Client(base_url=url, headers=headers, timeout=REQUEST_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        branch: str,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Send a request once.

        Raises:
            RemoteError: The server answered with another status than 200.
            UnavailableError: Nobody answered.
        """
        try:
            answer = self._http.request(
                method,
                f"{V1_API}{path}",
                content=content,
                params=params,
                headers={"Content-Type": "application/json", BRANCH_HEADER: branch, **(headers or {})},
                timeout=timeout_seconds or REQUEST_TIMEOUT_SECONDS,
            )
        except httpx.TransportError as error:
            raise UnavailableError(
                f"{self._url} doesn't answer ({type(error).__name__}: {error}). Is the server running? "
                "Start one with `caraway up`, see how it is with `caraway status`."
            ) from error
        response = Response(status_code=answer.status_code, headers=dict(answer.headers), body=_body(answer))
        if response.status_code != OK:
            raise _refusal(response)
        return response

    def send_until(
        self, method: str, path: str, *, branch: str, content: bytes, headers: Mapping[str, str], retry_seconds: float
    ) -> Response:
        """Send a request again and again until it is answered; for requests that the server takes only once.

        Each further try carries `Caraway-Elapsed-Ms`, the time since the first one, so that a server that has restarted
        since can look up what it had taken.

        Raises:
            RemoteError: The server refused the request.
            UnavailableError: Nobody took it within `retry_seconds`.
        """
        first = time.monotonic()
        pause = FIRST_PAUSE_SECONDS
        elapsed: dict[str, str] = {}
        while True:
            try:
                return self.send(method, path, branch=branch, content=content, headers={**headers, **elapsed})
            except (UnavailableError, RemoteError) as error:
                gone = time.monotonic() - first
                if not _may_succeed_later(error) or gone + pause > retry_seconds:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            elapsed = {"Caraway-Elapsed-Ms": str(int(1000 * (time.monotonic() - first)))}


def _may_succeed_later(error: UnavailableError | RemoteError) -> bool:
    return isinstance(error, UnavailableError) or error.status in RETRYABLE


def _body(answer: httpx.Response) -> Any:  # noqa: ANN401 (any JSON)
    if "json" not in answer.headers.get("content-type", "").lower():
        return answer.text
    try:
        return orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return answer.text


def _refusal(response: Response) -> RemoteError:
    body = response.json()
    details = body if isinstance(body, dict) else {}
    message = details.get("err_msg") or body
    error = RemoteError(
        f"the server answered {response.status_code}: {message}",
        status=response.status_code,
        remote_code=str(details.get("code", "")),
        body=body,
    )
    if details.get("err_diff"):
        error.add_note(str(details["err_diff"]))
    return error
