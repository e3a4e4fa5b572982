"""What is marked as deleted goes before anything else looks at a commit."""

from caraway.graph.specs import Graph


def without_deleted(graph: Graph) -> Graph:
    """Return the graph without the entities that are marked as deleted; what refers to them is left with nothing."""
    return Graph(
        datasets=tuple(d for d in graph.datasets if not d.metadata.deleted),
        featuresets=tuple(f for f in graph.featuresets if not f.metadata.deleted),
    )
