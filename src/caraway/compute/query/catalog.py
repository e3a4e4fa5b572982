"""A graph whose datasets, featuresets, features and extractors are found by name, for queries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from caraway.dtypes.types import DataType
from caraway.errors import UnknownEntityError
from caraway.graph.references import inputs_of, outputs_of
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, Graph
from caraway.graph.trees import absent_values

# An error lists at most this many names; more would bury the message.
MAX_LISTED = 20


@dataclass(frozen=True, eq=False)
class Catalog:
    """A graph and its version, which changes with every commit."""

    version: str
    graph: Graph

    @cached_property
    def datasets(self) -> dict[str, DatasetSpec]:
        """Return the datasets by name."""
        return {spec.name: spec for spec in self.graph.datasets}

    @cached_property
    def featuresets(self) -> dict[str, FeaturesetSpec]:
        """Return the featuresets by name."""
        return {spec.name: spec for spec in self.graph.featuresets}

    @cached_property
    def absent(self) -> dict[str, Mapping[str, object]]:
        """Return the values of fields for a key without rows, by dataset."""
        return {spec.name: absent_values(spec) for spec in self.graph.datasets}

    @cached_property
    def features(self) -> dict[str, DataType]:
        """Return the types of all features, by full name."""
        return {f"{spec.name}.{f.name}": f.dtype for spec in self.graph.featuresets for f in spec.features}

    @cached_property
    def extractors(self) -> dict[str, tuple[FeaturesetSpec, Extractor]]:
        """Return the extractor of each feature, with its featureset, by the feature's full name."""
        return {
            name: (spec, extractor)
            for spec in self.graph.featuresets
            for extractor in spec.extractors
            for name in outputs_of(extractor)
        }

    @cached_property
    def referenced(self) -> frozenset[str]:
        """Return the full names of all features that some extractor reads, also of those that the graph lacks."""
        return frozenset(
            name for spec in self.graph.featuresets for extractor in spec.extractors for name in inputs_of(extractor)
        )

    def dataset(self, name: str) -> DatasetSpec:
        """Return a dataset. Raises `UnknownEntityError` if there is no dataset of this name."""
        spec = self.datasets.get(name)
        if spec is None:
            raise UnknownEntityError(f"there is no dataset {name!r}; {listed('datasets', self.datasets)}")
        return spec


def listed(what: str, names: Iterable[str]) -> str:
    """Return a sentence that lists the existing `names`, for an error about an unknown one."""
    known = sorted(names)
    if not known:
        return f"there are no {what} yet"
    shown = ", ".join(known[:MAX_LISTED])
    return f"{what}: {shown}" + (f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else "")
