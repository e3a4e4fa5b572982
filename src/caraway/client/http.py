"""Requests to a Caraway server: one connection kept alive, errors as exceptions, retries where they are safe."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx2
import orjson

from caraway.client.conversations import Call, Conversation, until_taken
from caraway.client.response import V1_API, Response, no_answer, refusal
from caraway.errors import CarawayError
from caraway.process.authorities import authorities

# Time limits of a request, in seconds. They are long enough for a server that is busy with a commit. They don't delay
# the error if the server's process is down, since its machine then refuses the connection at once.
TIMEOUT = httpx2.Timeout(600.0)
COMMIT_TIMEOUT = httpx2.Timeout(300.0)

_Result = TypeVar("_Result")


class Connection:
    """Requests to one server, as one user.

    Each raises `RemoteError` if the server refuses it, and `UnavailableError` if the server doesn't answer.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._http = httpx2.Client(**_settings(url, token), transport=transport)
        self.clock = clock
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
        """Send a POST request with JSON, repeated for `retry_timeout` s while the server is down or in trouble."""
        return self.run(until_taken(path, body, headers, retry_timeout=retry_timeout, clock=self.clock))

    def run(self, conversation: Conversation[_Result]) -> _Result:
        """Send the requests of a conversation, pause where it does, and return its result."""
        try:
            step = next(conversation)
            while True:
                if not isinstance(step, Call):
                    self._sleep(step)
                    step = next(conversation)
                    continue
                try:
                    answer = self._checked(step.path, step.content, step.headers)
                except CarawayError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _checked(
        self,
        path: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        method: str = "POST",
        params: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout = TIMEOUT,
    ) -> Response:
        try:
            answer = self._http.request(
                method, V1_API + path, content=content, headers=headers, params=params, timeout=timeout
            )
        except httpx2.TransportError as error:
            raise no_answer(self._url, error) from error
        return _accepted(answer, f"{method} {path}")


class AsyncConnection:
    """Requests to one server of a program that runs on asyncio; see `Connection`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(**_settings(url, token), transport=transport)
        self.clock = clock
        self._sleep = sleep

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, conversation: Conversation[_Result]) -> _Result:
        """Send the requests of a conversation, pause where it does, and return its result."""
        try:
            step = next(conversation)
            while True:
                if not isinstance(step, Call):
                    await self._sleep(step)
                    step = next(conversation)
                    continue
                try:
                    answer = await self._checked(step)
                except CarawayError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result

    async def _checked(self, call: Call) -> Response:
        try:
            answer = await self._http.post(V1_API + call.path, content=call.content, headers=call.headers)
        except httpx2.TransportError as error:
            raise no_answer(self._url, error) from error
        return _accepted(answer, f"POST {call.path}")


def _settings(url: str, token: str) -> dict[str, Any]:
    # The path of the URL is dropped, as in Fennel's client: the paths of requests begin at the server's root.
    return {
        "base_url": httpx2.URL(url).join("/"),
        "headers": {"Authorization": f"Bearer {token}"} if token else {},
        "timeout": TIMEOUT,
        "verify": authorities(),
    }


def _accepted(answer: httpx2.Response, request: str) -> Response:
    response = Response(answer.status_code, answer.headers, answer.content)
    if response.status_code != httpx2.codes.OK:
        raise refusal(response, request)
    return response
