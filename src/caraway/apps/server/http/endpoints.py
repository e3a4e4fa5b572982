"""Endpoints: rows that hold all that the server knows about a method and path, and the router that finds them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Protocol, get_args, get_type_hints

from msgspec import Struct

from caraway.apps.server.http.bodies import Nothing, prepare
from caraway.apps.server.http.errors import UnknownPathError, WrongMethodError
from caraway.apps.server.http.messages import Headers, HttpResponse, Request
from caraway.state.permissions import Caller, Mode

API = "/api/v1"
# For an error about an unknown path: how many similar paths it names, how many characters of the path are compared to
# find them, and the path of the document that describes all endpoints.
NEAREST, COMPARED, DESCRIBED = 3, 80, f"{API}/openapi.json"

JSON = "application/json"
# The media types of protobuf: the one that Caraway's clients send, and those that other programs use.
PROTOBUF = ("application/octet-stream", "application/x-protobuf", "application/protobuf")

Handler = Callable[..., Awaitable[HttpResponse]]


class Scope(StrEnum):
    """The extent to which a caller needs a mode."""

    BRANCH = "the branch"
    # The answer is about no single branch, so a grant on any branch is enough.
    ANY_BRANCH = "any branch"
    # Secrets have no tags and belong to no branch. So a grant that is limited to tags or branches doesn't cover them;
    # the caller needs a grant without such limits.
    EVERYTHING = "all entities of all branches"


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a caller needs.

    Attributes:
        modes: The modes of which the caller needs one; none: any valid token is enough.
        scope: The extent to which the caller needs the mode.
        public: No token is needed.
        every: The caller needs all of the modes, instead of one of them.
    """

    modes: tuple[Mode, ...]
    scope: Scope = Scope.BRANCH
    public: bool = False
    every: bool = False

    @property
    def on_branch(self) -> bool:
        """True if the branch that a header names decides who is admitted."""
        return bool(self.modes) and self.scope is Scope.BRANCH

    @property
    def wanted(self) -> str:
        """The modes, for error messages."""
        return (" and " if self.every else " or ").join(self.modes)

    def admits(self, caller: Caller, branch: str) -> bool:
        """Return whether a caller with a valid token has the permission on a branch."""
        if not self.modes:
            return True
        if self.every:
            return all(Permission((mode,), self.scope).admits(caller, branch) for mode in self.modes)
        grants = [grant for grant in caller.grants if not grant.modes.isdisjoint(self.modes)]
        match self.scope:
            case Scope.BRANCH:
                return any(grant.branches is None or branch in grant.branches for grant in grants)
            case Scope.ANY_BRANCH:
                return bool(grants)
            case Scope.EVERYTHING:
                return any(grant.branches is None and grant.of_all for grant in grants)


PUBLIC = Permission((), public=True)
ANY_TOKEN = Permission(())
# A caller who makes tokens can give any role to anybody, so only those who may do everything may make tokens.
ADMINISTRATION = Permission(tuple(Mode), Scope.EVERYTHING, every=True)


class Page(Protocol):
    """The manner of endpoints that people open in a browser, instead of programs."""

    def headers(self, headers: Headers, query_string: str) -> Headers:
        """Return the headers of a request, with the token and the branch that the browser sends in other ways."""
        ...

    def refusal(self, error: Exception, path: str, query_string: str, headers: Headers) -> HttpResponse:
        """Return the answer to a request that failed."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and path with its handler, and all that the gate, the metrics, the document and the readers derive.

    Attributes:
        method: The method.
        path: The path, with at most one part in braces.
        handler: The function that answers. It has a parameter `request: Request[B, P]`, by which B is the Struct of a
            JSON body and P that of the query string. The first line of its docstring is the summary in the document.
        permission: The permission that callers need.
        answer: The type of the answer's JSON; None for text.
        target: The name in the metrics and in the audit log; that of the handler if it is empty.
        headers: Headers that the handler reads, besides that of the branch, as OpenAPI describes parameters.
        accepts: The media types of bodies; none if the body isn't read here.
        recorded: True if requests are written to the audit log, before they begin and with their outcome.
        reads: True if processes that only read (`caraway.apps.server.workers.reader`) answer, too.
        probe: True for the check of a load balancer, which asks by any name and as often as it likes.
        refusals: Statuses that the handler answers beyond those that follow from the other attributes.
        form_bytes: The most bytes of the body, which is a form of a browser; None for other bodies.
        operation: The id in the document; the handler's name in camel case if it is empty.
        page: How browsers ask and get errors, if people open the endpoint in one; None for programs.
    """

    method: str
    path: str
    handler: Handler
    permission: Permission
    answer: object = dict[str, Any]
    target: str = ""
    headers: tuple[Mapping[str, Any], ...] = ()
    accepts: tuple[str, ...] = (JSON,)
    recorded: bool = False
    reads: bool = False
    probe: bool = False
    refusals: tuple[int, ...] = ()
    form_bytes: int | None = None
    operation: str = ""
    page: Page | None = None
    body: type[Struct] = field(init=False)
    parameters: type[Struct] = field(init=False)

    def __post_init__(self) -> None:
        """Set what derives from the handler: the Structs, and the target if the row has none."""
        body, parameters = forms(self.handler.func if isinstance(self.handler, partial) else self.handler)
        prepare(body)
        prepare(parameters)
        object.__setattr__(self, "body", body)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "target", self.target or self.handler.__name__)

    @property
    def takes_body(self) -> bool:
        """True if requests have a body."""
        return self.method != "GET"

    async def respond(self, request: Request[Any, Any], name: str) -> HttpResponse:
        """Call the handler, with the name in the path if there is one."""
        return await (self.handler(request, name) if name else self.handler(request))


@lru_cache(maxsize=200)
def forms(handler: Handler) -> tuple[type[Struct], type[Struct]]:
    """Return the Structs of the body and the query string that a handler's parameter `request` has as arguments."""
    forms: tuple[Any, ...] = (*get_args(get_type_hints(handler)["request"]), Nothing, Nothing)
    # `Any` is no Struct, so neither the body nor the query string is decoded for a handler of `Request[Any, Any]`. Such
    # a handler gets the bytes of the body as they came.
    body, parameters = (Nothing if form is Any else form for form in forms[:2])
    return body, parameters


def bound(endpoints: Iterable[Endpoint], context: object) -> tuple[Endpoint, ...]:
    """Return endpoints whose handlers have their context, the first argument."""
    return tuple(replace(endpoint, handler=partial(endpoint.handler, context)) for endpoint in endpoints)


class Router:
    """Finds the endpoint of a request."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Route requests among these endpoints."""
        self._endpoints = endpoints
        self._fixed: Mapping[tuple[str, str], Endpoint] = {
            (e.method, e.path): e for e in endpoints if "{" not in e.path
        }
        self._open = tuple((e, *_around(e.path)) for e in endpoints if "{" in e.path)

    def find(self, method: str, path: str) -> tuple[Endpoint, str]:
        """Return the endpoint of a request, and the part of its path that stands in the place of the braces.

        Raises:
            UnknownPathError: There is nothing under this path; the text lists the nearest endpoints.
            WrongMethodError: The path exists, but not for this method.
        """
        endpoint = self._fixed.get((method, path))
        if endpoint is not None:
            return endpoint, ""
        for candidate, head, tail in self._open:
            if candidate.method == method and (name := _between(path, head, tail)):
                return candidate, name
        raise self._refusal(method, path)

    def _refusal(self, method: str, path: str) -> UnknownPathError | WrongMethodError:
        allowed = sorted(
            e.method for e in self._endpoints if e.path == path or ("{" in e.path and _between(path, *_around(e.path)))
        )
        if allowed:
            return WrongMethodError(f"{path} doesn't take {method}; it takes {', '.join(allowed)}", ", ".join(allowed))
        # A stranger may ask for a path of any length. The search takes longer for a longer text, so only the beginning
        # of the path is compared.
        known = dict.fromkeys(endpoint.path for endpoint in self._endpoints)
        near = get_close_matches(path[:COMPARED], known, n=NEAREST, cutoff=0.0)
        listed = ", ".join(f"{e.method} {e.path}" for name in near for e in self._endpoints if e.path == name)
        return UnknownPathError(
            f"there is nothing under {path[:200]}; the nearest of {len(known)} paths are {listed}; {DESCRIBED} has all"
        )


def _around(pattern: str) -> tuple[str, str]:
    head, _, rest = pattern.partition("{")
    return head, rest.partition("}")[2]


def _between(path: str, head: str, tail: str) -> str:
    if path.startswith(head) and path.endswith(tail) and len(path) > len(head) + len(tail):
        name = path[len(head) : len(path) - len(tail)]
        return "" if "/" in name else name
    return ""
