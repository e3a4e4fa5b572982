"""The content of a branch after a commit: a pure function of its content before and of the commit."""

from collections.abc import Iterable

from caraway.errors import CommitError
from caraway.graph.immutability import E, immutability_faults
from caraway.graph.specs import Graph


def merge(current: Graph, given: Graph, *, incremental: bool) -> Graph:
    """Return the branch's content after `given` is committed onto `current`.

    Entities with `deleted=True` are removed. An incremental commit keeps other entities that it doesn't mention, and
    a full one drops them.

    Raises:
        CommitError: A definition changed without its version, a version went down, a featureset lost features in an
            incremental commit. The message has all such faults of a commit.
    """
    if faults := immutability_faults(current, given, incremental=incremental):
        raise CommitError("\n".join(faults))
    return laid_over(current if incremental else Graph(), given)


def without_deleted(graph: Graph) -> Graph:
    """Return the graph without the entities that are marked as deleted; references to them dangle."""
    return Graph(
        datasets=tuple(d for d in graph.datasets if not d.metadata.deleted),
        featuresets=tuple(f for f in graph.featuresets if not f.metadata.deleted),
    )


def laid_over(current: Graph, given: Graph) -> Graph:
    """Return `current` with `given` in place of namesakes, new entities at the end, deleted ones dropped."""
    return Graph(
        datasets=_merged(current.datasets, given.datasets),
        featuresets=_merged(current.featuresets, given.featuresets),
    )


def _merged(kept: Iterable[E], given: Iterable[E]) -> tuple[E, ...]:
    by_name: dict[str, E] = {entity.name: entity for entity in kept}
    by_name.update((entity.name, entity) for entity in given)
    return tuple(entity for entity in by_name.values() if not entity.metadata.deleted)
