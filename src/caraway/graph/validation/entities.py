"""Checks of names and owners."""

from collections import Counter
from collections.abc import Iterable

from caraway.errors import CommitError
from caraway.graph.specs import Entity
from caraway.graph.validation.scope import CheckedGraph


def names_are_unique(scope: CheckedGraph) -> None:
    """Check that no two datasets or featuresets have one name, and no two parts of one of them."""
    for kind, names in (
        ("dataset", [d.name for d in scope.graph.datasets]),
        ("featureset", [f.name for f in scope.graph.featuresets]),
    ):
        if twice := _repeated(names):
            raise CommitError(f"{kind} {twice} is given twice; names are unique in a commit")
    for dataset in scope.graph.datasets:
        if twice := _repeated(f.name for f in dataset.fields):
            raise CommitError(f"dataset {dataset.name} has two fields {twice}")
        if twice := _repeated(p.name for p in dataset.pipelines):
            raise CommitError(f"dataset {dataset.name} has two pipelines {twice}; give them different names")
    for featureset in scope.graph.featuresets:
        if twice := _repeated(f.name for f in featureset.features):
            raise CommitError(f"featureset {featureset.name} has two features {twice}")
        if twice := _repeated(e.name for e in featureset.extractors):
            raise CommitError(f"featureset {featureset.name} has two extractors {twice}")


def owners_are_known(scope: CheckedGraph) -> None:
    """Check that each dataset and featureset has an owner, to whom alerts go."""
    entities: list[tuple[str, Entity]] = [
        *(("dataset", d) for d in scope.graph.datasets),
        *(("featureset", f) for f in scope.graph.featuresets),
    ]
    for kind, entity in entities:
        if not entity.metadata.owner:
            raise CommitError(
                f'{kind} {entity.name} has no owner; put @meta(owner="you@example.com") above it, or '
                "__owner__ into its module"
            )


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


ENTITY_CHECKS = (names_are_unique, owners_are_known)
