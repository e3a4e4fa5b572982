"""The answers of a mock client, in the form of a server's answers."""

import orjson

from caraway.client import Response
from caraway.client.results import Changes, CommitResult
from caraway.graph.specs import Graph


def ok() -> Response:
    """Return the response for success."""
    return Response(200, {}, b"{}")


def failed(status: int, text: str) -> Response:
    """Return an error response, for methods that don't raise."""
    return Response(status, {}, orjson.dumps({"error": text}))


def committed(before: Graph, after: Graph) -> CommitResult:
    """Return the result of a commit, from a branch before and after it."""
    datasets = [{spec.name: spec for spec in graph.datasets} for graph in (before, after)]
    featuresets = [{spec.name: spec for spec in graph.featuresets} for graph in (before, after)]
    features = [
        {f"{spec.name}.{feature.name}": feature for spec in graph.featuresets for feature in spec.features}
        for graph in (before, after)
    ]
    return CommitResult(
        200,
        {},
        b"{}",
        datasets=Changes.between(*datasets),
        featuresets=Changes.between(*featuresets),
        features=Changes.between(*features),
    )
