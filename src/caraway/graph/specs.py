"""The content of a commit: datasets and featuresets as frozen values.

The authoring packages build these; the data plane knows nothing else. On the wire they are protobuf
(`caraway.graph.wire`).
"""

from dataclasses import dataclass

from caraway.dtypes.types import DataType
from caraway.expr.nodes import Node
from caraway.graph.drift import Drift
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.operators import Operator
from caraway.graph.sources import SinkSpec, SourceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Owner, description, flags and thresholds of drift: never part of a definition's identity."""

    owner: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    deleted: bool = False
    drift: Drift | None = None


NO_METADATA = Metadata()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A column of a dataset."""

    name: str
    dtype: DataType
    key: bool = False
    timestamp: bool = False
    erase_key: bool = False
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """The lookups that a dataset serves: at now (online), at any time (offline)."""

    online: bool
    offline: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline: its input datasets and its operator tree."""

    name: str
    inputs: tuple[str, ...]
    operator: Operator
    env: tuple[str, ...] = ()
    source_code: str = ""
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """A dataset: schema, index, sources and pipelines."""

    name: str
    version: int
    history_us: int
    fields: tuple[FieldSpec, ...]
    index: IndexSpec | None
    sources: tuple[SourceSpec, ...] = ()
    pipelines: tuple[PipelineSpec, ...] = ()
    sinks: tuple[SinkSpec, ...] = ()
    expectations: ExpectationSuite | None = None
    metadata: Metadata = NO_METADATA

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key fields, in declared order."""
        return tuple(f.name for f in self.fields if f.key)

    @property
    def timestamp(self) -> str:
        """The name of the timestamp field."""
        return next(f.name for f in self.fields if f.timestamp)

    @property
    def profiled(self) -> bool:
        """True if profiles of its columns are kept: it has thresholds of drift, or one of its fields has."""
        return self.metadata.drift is not None or any(f.metadata.drift is not None for f in self.fields)

    @property
    def profiled_fields(self) -> tuple[FieldSpec, ...]:
        """The fields that have profiles: neither the timestamp nor those that only name what a row is about."""
        return tuple(f for f in self.fields if not (f.key or f.timestamp or f.erase_key))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """A feature of a featureset."""

    name: str
    dtype: DataType
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupExtractor:
    """The extractor that looks `output` up as `dataset.field`; `inputs` are the keys' full names, in order.

    If `element_wise`, all inputs are lists: a row's output is the list of the values for their first elements, for
    their second ones, and so on; `default` stands for each missing value.
    """

    name: str
    dataset: str
    field: str
    inputs: tuple[str, ...]
    output: str
    default: object = None
    element_wise: bool = False
    version: int = 0
    env: tuple[str, ...] = ()
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasExtractor:
    """The extractor whose `output` is another feature, or `default` where that is null."""

    name: str
    input: str
    output: str
    default: object = None
    version: int = 0
    env: tuple[str, ...] = ()
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionExtractor:
    """The extractor that computes `output` by `expr` over features of its featureset; `inputs` has full names."""

    name: str
    expr: Node
    inputs: tuple[str, ...]
    output: str
    version: int = 0
    env: tuple[str, ...] = ()
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonExtractor:
    """The extractor that computes `outputs` from `inputs` by a user's function, which may look up `datasets`.

    `pickled` is the function by value (cloudpickle), `source_code` its text.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    datasets: tuple[str, ...]
    version: int
    source_code: str
    pickled: bytes
    env: tuple[str, ...] = ()
    metadata: Metadata = NO_METADATA


Extractor = LookupExtractor | AliasExtractor | ExpressionExtractor | PythonExtractor


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesetSpec:
    """A featureset: features and extractors. All feature references in extractors are full names (`Set.feature`)."""

    name: str
    features: tuple[FeatureSpec, ...]
    extractors: tuple[Extractor, ...]
    metadata: Metadata = NO_METADATA


Entity = DatasetSpec | FeaturesetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything that a branch holds."""

    datasets: tuple[DatasetSpec, ...] = ()
    featuresets: tuple[FeaturesetSpec, ...] = ()
