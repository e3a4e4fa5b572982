"""The answers of a mock client, in the form of a server's answers."""

import orjson

from caraway.client import Response
from caraway.client.results import CommitResult
from caraway.graph.changes import changes
from caraway.graph.specs import Graph


def ok() -> Response:
    """Return the response for success."""
    return Response(200, {}, b"{}")


def failed(status: int, text: str) -> Response:
    """Return an error response, for methods that don't raise."""
    return Response(status, {}, orjson.dumps({"error": text}))


def committed(before: Graph, after: Graph) -> CommitResult:
    """Return the result of a commit, from a branch before and after it."""
    found = changes(before, after)
    return CommitResult(
        200,
        {},
        b"{}",
        datasets=found["datasets"],
        featuresets=found["featuresets"],
        features=found["features"],
        systems=found["systems"],
    )
