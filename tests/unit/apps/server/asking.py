"""Requests to a server's application in this process, without HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from caraway.apps.server.app import App
from caraway.dataplane.topics.producer import TopicItem

HOST = "127.0.0.1:8100"


class Writer:
    """A writer whose records are durable at once."""

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        del topic, items
        future: Future[None] = Future()
        future.set_result(None)
        return future


class Headers:
    """Headers of a request, by lower-case name."""

    def __init__(self, **headers: str) -> None:
        self._headers = headers

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._headers.get(key, default)

    def get_all(self, key: str) -> list[str]:
        return [self._headers[key]] if key in self._headers else []


@dataclass(slots=True)
class Exchange:
    """The connection of a request with a body, which keeps the answer."""

    given: bytes
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    async def __call__(self) -> bytes:
        return self.given

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.given

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return dict(self.headers).get(name, "")


def send(app: App, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Exchange:
    """Send a request with exactly these headers, and its length."""
    return asyncio.run(answered(app, method, path, body, headers))


async def answered(
    app: App, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> Exchange:
    """Send a request beside others, as `send` does."""
    path, _, query = path.partition("?")
    given = Headers(**{"content-length": str(len(body)), **(headers or {})})
    about = {"scheme": "http", "client": "127.0.0.1:1", "method": method, "path": path, "query_string": query}
    scope: Any = SimpleNamespace(**about, headers=given)
    exchange: Any = Exchange(body)
    await app.__rsgi__(scope, exchange)
    told: Exchange = exchange
    return told


def ask(app: App, method: str, path: str, body: object = None, **headers: str) -> Exchange:
    """Send a request of a program on the server's machine, with a JSON body or with one of bytes."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(app, method, path, raw, {"host": HOST, "content-type": "application/json", **named})
