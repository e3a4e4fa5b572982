"""The entities that a commit touches, with the tags that decide who may change them."""

from collections.abc import Collection, Iterator, Mapping

from caraway.graph.lineage import effective_tags, extractor_tags
from caraway.graph.references import outputs_of
from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph


def touched(before: Graph, after: Graph) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the name of each entity that differs between two graphs, also in metadata, with its tags before and after.

    An entity whose tags change is yielded twice, with the old and with the new tags. The author needs access by both,
    so nobody gains access to an entity by adding a tag to it.
    """
    for graph, other in ((before, after), (after, before)):
        tags = effective_tags(graph)
        extractors = extractor_tags(graph, tags)
        datasets: Mapping[str, DatasetSpec] = {spec.name: spec for spec in other.datasets}
        featuresets: Mapping[str, FeaturesetSpec] = {spec.name: spec for spec in other.featuresets}
        for dataset in graph.datasets:
            if datasets.get(dataset.name) != dataset:
                yield dataset.name, tags[dataset.name]
        for featureset in graph.featuresets:
            counterpart = featuresets.get(featureset.name)
            for name in _features(featureset, counterpart):
                yield name, tags[name]
            for extractor in featureset.extractors:
                # An extractor without tags of its own has those of its features, which are touched with it.
                if extractor.metadata.tags and (counterpart is None or extractor not in counterpart.extractors):
                    name = f"extractor {featureset.name}.{extractor.name}"
                    yield name, extractors[name]


def _features(spec: FeaturesetSpec, other: FeaturesetSpec | None) -> list[str]:
    """Return the full names of the features that differ, or whose extractor differs."""
    if other is None or other.metadata != spec.metadata:
        return [f"{spec.name}.{feature.name}" for feature in spec.features]
    changed = {f"{spec.name}.{feature.name}" for feature in spec.features if feature not in other.features}
    changed |= {
        name for extractor in spec.extractors if extractor not in other.extractors for name in outputs_of(extractor)
    }
    return [name for feature in spec.features if (name := f"{spec.name}.{feature.name}") in changed]
