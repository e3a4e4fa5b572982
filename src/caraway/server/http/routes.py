"""The routes, which map methods and paths to handlers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from caraway.server.http.errors import UnknownPathError, WrongMethodError
from caraway.server.http.messages import HttpResponse, Request

API = "/api/v1"

JSON = "application/json"
# The media types of protobuf: the one that Caraway's clients send, and those that other programs use.
PROTOBUF = ("application/octet-stream", "application/x-protobuf", "application/protobuf")

Handler = Callable[..., Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path, with the handler that answers its requests.

    Attributes:
        method: The method.
        path: The path, with at most one part in braces.
        handler: The function that answers.
        target: The label in the metrics.
        accepts: The media types of bodies; empty if the body isn't read here.
    """

    method: str
    path: str
    handler: Handler
    target: str
    accepts: tuple[str, ...] = (JSON,)

    async def answer(self, request: Request, name: str) -> HttpResponse:
        """Call the handler, with the name in the path if there is one."""
        return await (self.handler(request, name) if name else self.handler(request))


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        """Route requests among these routes."""
        self._routes = routes
        self._fixed: Mapping[tuple[str, str], Route] = {(r.method, r.path): r for r in routes if "{" not in r.path}
        self._open = tuple((r, *_around(r.path)) for r in routes if "{" in r.path)

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """Return the route of a request, and the part of its path that stands in the place of the braces.

        Raises:
            UnknownPathError: There is nothing under this path; the text lists the routes.
            WrongMethodError: The path exists, but not for this method.
        """
        route = self._fixed.get((method, path))
        if route is not None:
            return route, ""
        for candidate, head, tail in self._open:
            if candidate.method == method and (name := _between(path, head, tail)):
                return candidate, name
        raise self._refusal(method, path)

    def _refusal(self, method: str, path: str) -> UnknownPathError | WrongMethodError:
        allowed = sorted(
            r.method for r in self._routes if r.path == path or ("{" in r.path and _between(path, *_around(r.path)))
        )
        if allowed:
            return WrongMethodError(f"{path} doesn't take {method}; it takes {', '.join(allowed)}", ", ".join(allowed))
        listed = ", ".join(f"{route.method} {route.path}" for route in self._routes)
        return UnknownPathError(f"there is nothing under {path[:200]}; there are: {listed}")


def _around(pattern: str) -> tuple[str, str]:
    head, _, rest = pattern.partition("{")
    return head, rest.partition("}")[2]


def _between(path: str, head: str, tail: str) -> str:
    if path.startswith(head) and path.endswith(tail) and len(path) > len(head) + len(tail):
        name = path[len(head) : len(path) - len(tail)]
        return "" if "/" in name else name
    return ""
