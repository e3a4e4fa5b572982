"""Removal of the entities that are marked as deleted, before any other check of a commit."""

from caraway.graph.specs import Graph


def without_deleted(graph: Graph) -> Graph:
    """Return the graph without the entities that are marked as deleted; references to them dangle."""
    return Graph(
        datasets=tuple(d for d in graph.datasets if not d.metadata.deleted),
        featuresets=tuple(f for f in graph.featuresets if not f.metadata.deleted),
    )
