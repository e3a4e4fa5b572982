"""The data that the checks of a commit read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from caraway.graph.specs import DatasetSpec, FeaturesetSpec, Graph


@dataclass(frozen=True)
class CheckedGraph:
    """A graph to check, already filtered by the environment of the commit and without deleted entities.

    Attributes:
        graph: Datasets and featuresets.
        partial: True if the graph will be laid over another graph, which may have entities that this one lacks.
        deleted: Names of datasets and featuresets that the commit deletes, so that the other graph can't supply them.
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
        """Return whether an entity that this graph lacks may be in the graph over which it will be laid."""
        return self.partial and name not in self.deleted

    def remedy(self, name: str) -> str:
        """Return what to do about an entity that the graph lacks, as the end of an error's text."""
        if name in self.deleted:
            return "which this commit deletes; remove what depends on it first"
        return "which is not in the commit; add it"
