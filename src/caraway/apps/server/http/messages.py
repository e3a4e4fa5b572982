"""Requests and answers, without a framework: thin wrappers around granian's objects."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol
from urllib.parse import parse_qsl

import msgspec
import orjson
from msgspec import Struct
from typing_extensions import TypeVar

from caraway.apps.server.http.bodies import Nothing, from_query, structured
from caraway.apps.server.http.budget import Budget, Hold
from caraway.errors import InvalidInputError
from caraway.process.json_text import SHORT_BYTES, check, loads, parse
from caraway.process.thread_names import show_name
from caraway.state.model import MAIN
from caraway.state.permissions import ANYBODY, Caller

MAX_BODY_BYTES = 32 * 1024 * 1024
# The threads that decompress and decode large bodies, and compress large answers. Decoding runs under Python's global
# lock, so more threads wouldn't be faster, but would hold more memory at the same time.
DECODERS: Final = ThreadPoolExecutor(2, thread_name_prefix="decoder", initializer=show_name)
# The window bits by which zlib accepts both gzip and zlib headers.
ANY_HEADER = 32 + zlib.MAX_WBITS
# The names of the header that names the branch: Caraway's own, and the one of Fennel's API.
BRANCH_HEADERS: Final = ("x-caraway-branch", "x-fennel-branch")
JSON_HEADERS: Final = (("content-type", "application/json"),)

G = TypeVar("G")
T = TypeVar("T")
B = TypeVar("B", bound=Struct, default=Nothing)
P = TypeVar("P", bound=Struct, default=Nothing)


class Headers(Protocol):
    """Headers of a request, by lower-case name."""

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of a header."""
        ...


class AllHeaders(Headers, Protocol):
    """Headers of a request as granian has them."""

    def get_all(self, key: str) -> Iterable[str]:
        """Return the values of all headers of one name, in their order."""
        ...


class RsgiScope(Protocol):
    """The parts of a request that granian passes to the application; `client` is its address, with the port."""

    scheme: str
    client: str
    method: str
    path: str
    query_string: str
    headers: AllHeaders


class Exchange(Protocol):
    """The connection on which the body is read and the answer is sent."""

    async def __call__(self) -> bytes:
        """Read the whole body."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the body in pieces."""
        ...

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send the answer."""
        ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Request(Generic[B, P]):
    """A request whose body has been read, with its caller.

    `body_form` and `parameters_form` are the Structs of the endpoint, as which the body and the query string are taken.
    `branch` is the branch that the request is about.
    """

    method: str
    path: str
    query_string: str
    headers: Headers
    body: bytes
    caller: Caller = ANYBODY
    hold: Hold = field(default_factory=lambda: Hold(Budget()))
    body_form: type[B] = Nothing  # type: ignore[assignment]
    parameters_form: type[P] = Nothing  # type: ignore[assignment]
    branch: str = field(init=False)

    def __post_init__(self) -> None:
        """Find the branch."""
        object.__setattr__(self, "branch", branch_of(self.headers))

    @property
    def is_large(self) -> bool:
        """True if work on the body, and on the values that it holds, would block the event loop for too long."""
        return len(self.body) > SHORT_BYTES

    async def read(self) -> B:
        """Return the members of the JSON body. An empty body is an object without members, if none is required.

        Raises:
            InvalidInputError: The body isn't JSON or nests too deep, or a member isn't what is expected.
            TooLargeError: The body has too many values.
            BusyError: All requests together take too much memory.
        """
        if not self.body and not any(member.required for member in msgspec.structs.fields(self.body_form)):
            return self.body_form()
        if not self.body:
            raise InvalidInputError("the body is empty; JSON is expected")
        try:
            value = await self.values(self.body)
        except InvalidInputError as error:
            raise InvalidInputError(f"the body {error}") from error
        return structured(value, self.body_form)

    async def values(self, text: bytes) -> Any:
        """Return the values of a JSON text; those of a large one are made in a thread.

        Raises:
            InvalidInputError: The text isn't JSON, or nests too deep; the message has the position.
            TooLargeError: The text has too many values.
            BusyError: All requests together take too much memory.
        """
        if len(text) <= SHORT_BYTES:
            return parse(text)
        shape = await in_decoder(check, text)
        self.hold.grow(shape.memory_bytes(text))
        return await in_decoder(loads, text)

    def parameters(self) -> P:
        """Return the parameters of the query string; the last one counts if several have the same name.

        Raises `InvalidInputError` if a parameter is missing or isn't what is expected.
        """
        return from_query(dict(parse_qsl(self.query_string, keep_blank_values=True)), self.parameters_form)


async def in_decoder(work: Callable[[G], T], given: G) -> T:
    """Return the result of `work` on a body or a part of it, computed in one of the threads for large bodies."""
    return await asyncio.get_running_loop().run_in_executor(DECODERS, work, given)


def branch_of(headers: Headers) -> str:
    """Return the branch that a request is about."""
    for header in BRANCH_HEADERS:
        if name := headers.get(header):
            return name
    return MAIN


def media_type(header: str | None) -> str:
    """Return the media type in a header, without parameters."""
    return "" if header is None else header.partition(";")[0].strip().lower()


def json_response(body: object, status: int = 200) -> HttpResponse:
    """Build a JSON answer."""
    return HttpResponse(status, list(JSON_HEADERS), orjson.dumps(body))


def text_response(body: str, content_type: str = "text/plain; charset=utf-8") -> HttpResponse:
    """Build a text answer."""
    return HttpResponse(200, [("content-type", content_type)], body.encode())
