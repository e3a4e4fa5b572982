"""Requests and answers, without a framework: what granian gives is wrapped as far as the routes need it."""

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import orjson

from caraway.errors import InvalidInputError
from caraway.ingest.table import position
from caraway.state.model import MAIN
from caraway.state.permissions import ANYBODY, Caller

MAX_BODY_BYTES = 32 * 1024 * 1024
# zlib's name for "gzip or zlib, see the header".
ANY_HEADER = 32 + zlib.MAX_WBITS
# Our own header, and that of the API which programs were written for.
BRANCH_HEADERS: Final = ("x-caraway-branch", "x-fennel-branch")
JSON_HEADERS: Final = (("content-type", "application/json"),)


class Headers(Protocol):
    """Headers of a request, by lower-case name."""

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return a header."""
        ...


class Scope(Protocol):
    """What granian tells of a request."""

    method: str
    path: str
    query_string: str
    headers: Headers


class Exchange(Protocol):
    """The way to body and answer."""

    async def __call__(self) -> bytes:
        """Read the whole body."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the body in pieces."""
        ...

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose body has been read, and who makes it."""

    method: str
    path: str
    query_string: str
    headers: Headers
    body: bytes
    caller: Caller = ANYBODY

    @property
    def branch(self) -> str:
        """The branch that it is about."""
        return branch_of(self.headers)

    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        """Parse the body.

        Raises:
            InvalidInputError: It isn't JSON; the text tells where.
        """
        if not self.body:
            raise InvalidInputError("the body is empty; JSON is expected")
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"the body isn't JSON: {position(error)}") from error

    def parameters(self) -> dict[str, str]:
        """Return the query string's parameters; of several with one name the last."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a query parameter that is `true` or `false`.

        Raises:
            InvalidInputError: It is something else.
        """
        value = self.parameters().get(name)
        if value is None:
            return default
        if value not in {"true", "false"}:
            raise InvalidInputError(f"query parameter {name} is {value!r}; true or false is expected")
        return value == "true"


def branch_of(headers: Headers) -> str:
    """Return the branch that a request is about."""
    return next((name for header in BRANCH_HEADERS if (name := headers.get(header))), MAIN)


def media_type(header: str | None) -> str:
    """Return the media type in a header, without parameters."""
    return "" if header is None else header.partition(";")[0].strip().lower()


def json_response(body: object, status: int = 200) -> Response:
    """Make an answer of JSON."""
    return Response(status, list(JSON_HEADERS), orjson.dumps(body))


def text_response(body: str, content_type: str = "text/plain; charset=utf-8") -> Response:
    """Make an answer of text."""
    return Response(200, [("content-type", content_type)], body.encode())
