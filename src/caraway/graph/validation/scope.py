"""What a commit's checks look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph


@dataclass(frozen=True)
class CheckedGraph:
    """A graph to check, already filtered by the environment of the commit and without what is deleted.

    Attributes:
        graph: Datasets and featuresets.
        partial: The graph is to be laid over one that isn't known here: what it lacks may be there.
        deleted: Names of datasets and featuresets that the commit deletes: these aren't there for sure.
    """

    graph: Graph
    partial: bool = False
    deleted: frozenset[str] = frozenset()

    @cached_property
    def datasets(self) -> Mapping[str, DatasetSpec]:
        """The datasets by name."""
        return {dataset.name: dataset for dataset in self.graph.datasets}

    @cached_property
    def featuresets(self) -> Mapping[str, FeaturesetSpec]:
        """The featuresets by name."""
        return {featureset.name: featureset for featureset in self.graph.featuresets}

    def may_be_elsewhere(self, name: str) -> bool:
        """Tell whether an entity that the graph lacks may be in the one that it is laid over."""
        return self.partial and name not in self.deleted

    def remedy(self, name: str) -> str:
        """Tell what to do about an entity that the graph lacks."""
        if name in self.deleted:
            return "which this commit deletes; remove what depends on it first"
        return "which is not in the commit; add it"
