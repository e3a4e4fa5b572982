"""All entities of a graph, found by kind and name, with what they come from and go into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from caraway.graph.lineage import effective_owners
from caraway.graph.lineage_graph import Lineage, NodeKind, lineage_of
from caraway.graph.references import outputs_of
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, FeatureSpec, Graph
from caraway.graph.trees import following, reached


class Kind(StrEnum):
    """The kinds of entities that have a page."""

    DATASET = "dataset"
    FEATURESET = "featureset"
    FEATURE = "feature"
    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entity as the catalogue lists it."""

    kind: Kind
    name: str
    owner: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    deprecated: bool = False

    @property
    def text(self) -> str:
        """The text that is searched."""
        return " ".join((self.kind, self.name, self.owner, self.description, *self.tags)).lower()


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The entities of a graph, which holds only what the caller may read. `tags` has those of datasets and features."""

    graph: Graph
    tags: Mapping[str, frozenset[str]]

    @cached_property
    def datasets(self) -> Mapping[str, DatasetSpec]:
        """The datasets by name."""
        return {spec.name: spec for spec in self.graph.datasets}

    @cached_property
    def featuresets(self) -> Mapping[str, FeaturesetSpec]:
        """The featuresets by name."""
        return {spec.name: spec for spec in self.graph.featuresets}

    @cached_property
    def features(self) -> Mapping[str, tuple[FeaturesetSpec, FeatureSpec]]:
        """The features by full name, each with its featureset."""
        return {f"{spec.name}.{f.name}": (spec, f) for spec in self.graph.featuresets for f in spec.features}

    @cached_property
    def extractors(self) -> Mapping[str, Extractor]:
        """The extractors by the full names of the features that they compute."""
        return {
            name: extractor
            for spec in self.graph.featuresets
            for extractor in spec.extractors
            for name in outputs_of(extractor)
        }

    @cached_property
    def sources(self) -> Mapping[str, Sequence[str]]:
        """The datasets of each source, by the source's text."""
        return following(
            (source.connector.identifier, spec.name) for spec in self.graph.datasets for source in spec.sources
        )

    @cached_property
    def sinks(self) -> Mapping[str, Sequence[str]]:
        """The datasets of each sink, by the sink's text."""
        return following((sink.connector.identifier, spec.name) for spec in self.graph.datasets for sink in spec.sinks)

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """The owners of all entities, by name and full name."""
        return effective_owners(self.graph)

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """All entities, by kind and in the order of their definition."""
        return tuple(self._entries())

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts of the entries that are searched."""
        return tuple(entry.text for entry in self.entries)

    @cached_property
    def lineage(self) -> Lineage:
        """The nodes and edges of the graph."""
        return lineage_of(self.graph)

    @cached_property
    def below(self) -> Mapping[str, Sequence[str]]:
        """The entities that are computed from each entity, by ids; pipelines and extractors are passed over."""
        return _passed_over(self.lineage)

    @cached_property
    def above(self) -> Mapping[str, Sequence[str]]:
        """The entities that each entity is computed from, by ids."""
        return following((after, before) for before, afters in self.below.items() for after in afters)

    def ancestors(self, node: str) -> frozenset[str]:
        """Return the ids of all entities that an entity is computed from, directly or not."""
        return frozenset(reached([node], self.above))

    def has(self, node: str) -> bool:
        """Return whether there is an entity with an id."""
        return node in self._ids

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(node.id for node in self.lineage.nodes)

    def search(self, words: str, kind: Kind | None) -> list[Entry]:
        """Return the entries with all words in their names, owners, tags or descriptions; names that match first."""
        wanted = words.lower().split()
        found = [
            entry
            for entry, text in zip(self.entries, self.texts, strict=True)
            if (kind is None or entry.kind is kind) and all(word in text for word in wanted)
        ]
        if wanted:
            found.sort(key=lambda entry: not all(word in entry.name.lower() for word in wanted))
        return found

    def _entries(self) -> Iterator[Entry]:
        for spec in self.graph.datasets:
            about = spec.metadata
            yield Entry(
                kind=Kind.DATASET,
                name=spec.name,
                owner=about.owner,
                description=about.description,
                tags=self._tags(spec.name),
                deprecated=about.deprecated,
            )
        for featureset in self.graph.featuresets:
            about = featureset.metadata
            yield Entry(
                kind=Kind.FEATURESET,
                name=featureset.name,
                owner=about.owner,
                description=about.description,
                tags=tuple(about.tags),
                deprecated=about.deprecated,
            )
        for name, (_, feature) in self.features.items():
            yield Entry(
                kind=Kind.FEATURE,
                name=name,
                owner=self.owners[name],
                description=feature.metadata.description,
                tags=self._tags(name),
                deprecated=feature.metadata.deprecated,
            )
        for name in self.sources:
            yield Entry(kind=Kind.SOURCE, name=name)
        for name in self.sinks:
            yield Entry(kind=Kind.SINK, name=name)

    def _tags(self, name: str) -> tuple[str, ...]:
        return tuple(sorted(self.tags.get(name, ())))


def _passed_over(lineage: Lineage) -> Mapping[str, Sequence[str]]:
    between = {node.id for node in lineage.nodes if node.kind in {NodeKind.PIPELINE, NodeKind.EXTRACTOR}}
    after = following((edge.source, edge.target) for edge in lineage.edges)
    found: dict[str, list[str]] = {}
    for source, targets in after.items():
        if source not in between:
            ends = [end for target in targets for end in (after.get(target, ()) if target in between else (target,))]
            found[source] = list(dict.fromkeys(ends))
    return found
