"""The differences between two commits, for people and for programs."""

from collections.abc import Mapping
from dataclasses import dataclass

from caraway.graph.fingerprints import dataset_fingerprint, featureset_fingerprint
from caraway.graph.specs import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The names of entities, sorted: those that the second graph adds, lacks, and defines otherwise."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def differences(before: Graph, after: Graph) -> Differences:
    """Compare two graphs by their definitions; owners, descriptions and tags don't count."""
    old, new = _definitions(before), _definitions(after)
    return Differences(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(sorted(name for name in new.keys() & old.keys() if new[name] != old[name])),
    )


def _definitions(graph: Graph) -> Mapping[str, object]:
    datasets = {f"dataset {spec.name}": (dataset_fingerprint(spec), spec.index) for spec in graph.datasets}
    featuresets = {f"featureset {spec.name}": featureset_fingerprint(spec) for spec in graph.featuresets}
    features = {
        f"feature {spec.name}.{feature.name}": feature.dtype for spec in graph.featuresets for feature in spec.features
    }
    return {**datasets, **featuresets, **features}
