"""What a branch holds after a commit: a pure function of what it holds now and of what is committed.

Also the place where immutability is kept: a definition changes only together with its version.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from caraway.control.differences import Difference, dataset_differences, extractor_differences
from caraway.errors import CommitError
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph, Metadata, PythonExtractor


class _Entity(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def metadata(self) -> Metadata: ...


E = TypeVar("E", bound=_Entity)


def merge(current: Graph, given: Graph, *, incremental: bool) -> Graph:
    """Give the branch's content after committing `given` onto `current`.

    Entities with `deleted=True` go. Of the rest an incremental commit keeps what isn't mentioned, a full one drops it.

    Raises:
        CommitError: A definition changed without its version, a version went down, a featureset lost features in an
            incremental commit. All such faults of a commit are told at once.
    """
    faults = [
        *_dataset_faults(current.datasets, given.datasets),
        *_featureset_faults(current.featuresets, given.featuresets, incremental=incremental),
    ]
    if faults:
        raise CommitError("\n".join(faults))
    return Graph(
        datasets=_merged(current.datasets if incremental else (), given.datasets),
        featuresets=_merged(current.featuresets if incremental else (), given.featuresets),
    )


def _merged(kept: Iterable[E], given: Iterable[E]) -> tuple[E, ...]:
    """Put `given` into the places of their namesakes, new ones at the end."""
    by_name: dict[str, E] = {entity.name: entity for entity in kept}
    by_name.update((entity.name, entity) for entity in given)
    return tuple(entity for entity in by_name.values() if not entity.metadata.deleted)


def _by_name(entities: Iterable[E]) -> Mapping[str, E]:
    return {entity.name: entity for entity in entities}


def _dataset_faults(current: Iterable[DatasetSpec], given: Iterable[DatasetSpec]) -> list[str]:
    before = _by_name(current)
    faults: list[str] = []
    for new in given:
        old = before.get(new.name)
        if old is None or new.metadata.deleted or new.version > old.version:
            continue
        changes = dataset_differences(old, new)
        if new.version < old.version:
            faults.append(
                f"dataset {new.name!r}: its version went down from {old.version} to {new.version}; a version can only "
                f"be raised. Give it version={old.version} if it is unchanged, a greater one if not."
                + _because(changes)
            )
        elif changes:
            faults.append(
                f"dataset {new.name!r}: its definition changed but its version is still {new.version}. Raise it with "
                f"@dataset(version={old.version + 1}); the dataset is then computed anew." + _because(changes)
            )
    return faults


def _featureset_faults(
    current: Iterable[FeaturesetSpec], given: Iterable[FeaturesetSpec], *, incremental: bool
) -> list[str]:
    before = _by_name(current)
    faults: list[str] = []
    for new in given:
        old = before.get(new.name)
        if old is None or new.metadata.deleted:
            continue
        lost = [f.name for f in old.features if f.name not in {g.name for g in new.features}]
        if incremental and lost:
            faults.append(
                f"featureset {new.name!r}: an incremental commit may add features but not leave any out; missing: "
                f"{', '.join(lost)}. Keep them, or make a full commit."
            )
        faults += _extractor_faults(old, new)
    return faults


def _extractor_faults(old: FeaturesetSpec, new: FeaturesetSpec) -> list[str]:
    before = {e.name: e for e in old.extractors if isinstance(e, PythonExtractor)}
    faults: list[str] = []
    for extractor in new.extractors:
        stored = before.get(extractor.name)
        if stored is None or not isinstance(extractor, PythonExtractor) or extractor.version > stored.version:
            continue
        changes = extractor_differences(stored, extractor)
        if changes or extractor.version < stored.version:
            went = "went down" if extractor.version < stored.version else "was not raised"
            faults.append(
                f"extractor {extractor.name!r} of featureset {new.name!r}: version {stored.version} is stored, "
                f"{extractor.version} was given: it {went}. Give it @extractor(version={stored.version + 1})."
                + _because(changes)
            )
    return faults


def _because(changes: tuple[Difference, ...]) -> str:
    return "".join(f"\n    {change}" for change in changes)
