"""What a mock client answers, in the form of a server's answers."""

import orjson

from caraway.client import Response
from caraway.client.results import Changes, CommitResult
from caraway.graph.specs import Graph


def ok() -> Response:
    """Answer that all is well."""
    return Response(200, {}, b"{}")


def failed(status: int, text: str) -> Response:
    """Answer with an error instead of raising it."""
    return Response(status, {}, orjson.dumps({"error": text}))


def committed(before: Graph, after: Graph) -> CommitResult:
    """Answer with what a commit made of a branch."""
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
