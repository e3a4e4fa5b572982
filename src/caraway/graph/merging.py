"""What a branch holds after a commit: a pure function of what it holds now and of what is committed."""

from collections.abc import Iterable

from caraway.errors import CommitError
from caraway.graph.immutability import E, immutability_faults
from caraway.graph.specs import Graph


def merge(current: Graph, given: Graph, *, incremental: bool) -> Graph:
    """Give the branch's content after committing `given` onto `current`.

    Entities with `deleted=True` go. Of the rest an incremental commit keeps what isn't mentioned, a full one drops it.

    Raises:
        CommitError: A definition changed without its version, a version went down, a featureset lost features in an
            incremental commit. All such faults of a commit are told at once.
    """
    if faults := immutability_faults(current, given, incremental=incremental):
        raise CommitError("\n".join(faults))
    return laid_over(current if incremental else Graph(), given)


def laid_over(current: Graph, given: Graph) -> Graph:
    """Put the entities of `given` into the places of their namesakes, new ones at the end; drop what is deleted."""
    return Graph(
        datasets=_merged(current.datasets, given.datasets),
        featuresets=_merged(current.featuresets, given.featuresets),
    )


def _merged(kept: Iterable[E], given: Iterable[E]) -> tuple[E, ...]:
    by_name: dict[str, E] = {entity.name: entity for entity in kept}
    by_name.update((entity.name, entity) for entity in given)
    return tuple(entity for entity in by_name.values() if not entity.metadata.deleted)
