"""The rule that a definition changes only together with its version, applied to the definitions of a commit.

The in-process client and the server share these checks. Metadata is no part of a definition. Two further rules are the
server's alone: the versions of all that is computed from a changed dataset must rise too, and an entity must be marked
as deleted before a full commit may leave it out.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from caraway.graph.differences import Difference, dataset_differences, extractor_differences
from caraway.graph.references import outputs_of
from caraway.graph.specs import DatasetSpec, Entity, Extractor, FeaturesetSpec, Graph, PythonExtractor
from caraway.graph.trees import datasets_read

E = TypeVar("E", bound=Entity)

# The definitions of an earlier commit have lower versions, which only a rollback accepts.
GO_BACK = " To go back to an earlier commit, run `caraway rollback COMMIT`; `caraway history` lists the commits."


def immutability_faults(current: Graph, given: Graph, *, incremental: bool) -> tuple[str, ...]:
    """Return a message for each definition of `given` that changes one of `current` without a greater version.

    A message names the entity, the change, and the version that is needed. Both graphs are filtered by the same
    environment. In an incremental commit a featureset must also keep all of its features.
    """
    return (
        *_dataset_faults(current.datasets, given.datasets),
        *_featureset_faults(current.featuresets, given.featuresets, incremental=incremental),
    )


def descendant_faults(current: Graph, given: Graph) -> tuple[str, ...]:
    """Return a message for each dataset whose version must rise, since that of a dataset it is computed from rose."""
    before, after = by_name(current.datasets), by_name(given.datasets)
    faults = []
    for name, new in after.items():
        old = before.get(name)
        if old is None or new.metadata.deleted or new.version > old.version:
            continue
        raised = [
            parent
            for parent in dict.fromkeys(n for p in new.pipelines for n in datasets_read(p.operator))
            if parent in before and parent in after and after[parent].version > before[parent].version
        ]
        if raised:
            faults.append(
                f"dataset {name!r} is computed from {', '.join(map(repr, raised))}, whose version rose, but its own "
                f"is still {new.version}. Raise it with @dataset(version={old.version + 1}); the dataset is then "
                "computed anew."
            )
    return tuple(faults)


def omission_faults(current: Graph, given: Graph) -> tuple[str, ...]:
    """Return a message for each entity that a full commit leaves out although it isn't marked as deleted."""
    kinds: tuple[tuple[str, Iterable[Entity], Iterable[Entity]], ...] = (
        ("dataset", current.datasets, given.datasets),
        ("featureset", current.featuresets, given.featuresets),
    )
    return tuple(
        f"{kind} {entity.name!r} is left out, but not deleted. Commit it once with @meta(deleted=True), or commit with "
        "incremental=True (`caraway commit --incremental`)."
        for kind, before, after in kinds
        for entity in before
        if entity.name not in by_name(after)
    )


def by_name(entities: Iterable[E]) -> Mapping[str, E]:
    """Return entities by their names."""
    return {entity.name: entity for entity in entities}


def _dataset_faults(current: Iterable[DatasetSpec], given: Iterable[DatasetSpec]) -> list[str]:
    before = by_name(current)
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
                + GO_BACK
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
    before = by_name(current)
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
    before = {_identity(e): e for e in old.extractors}
    faults: list[str] = []
    for extractor in new.extractors:
        stored = before.get(_identity(extractor))
        if stored is None or extractor.version > stored.version:
            continue
        changes = extractor_differences(stored, extractor)
        if changes or extractor.version < stored.version:
            down = extractor.version < stored.version
            went = "went down" if down else "was not raised"
            remedy = "@extractor" if isinstance(extractor, PythonExtractor) else "feature"
            faults.append(
                f"extractor {extractor.name!r} of featureset {new.name!r}: version {stored.version} is stored, "
                f"{extractor.version} was given: it {went}. Give it {remedy}({_reference(extractor)}"
                f"version={stored.version + 1}).{GO_BACK if down else ''}" + _because(changes)
            )
    return faults


def _identity(extractor: Extractor) -> tuple[str, ...]:
    """Return the key by which two extractors are the same: the name of a function, the feature of a generated one."""
    return (
        ("function", extractor.name) if isinstance(extractor, PythonExtractor) else ("feature", *outputs_of(extractor))
    )


def _reference(extractor: Extractor) -> str:
    return "" if isinstance(extractor, PythonExtractor) else "..., "


def _because(changes: tuple[Difference, ...]) -> str:
    return "".join(f"\n    {change}" for change in changes)
