"""The physical plan of a graph: topics, jobs and indexes, as plain data.

`caraway.plan.planner` makes it from a graph; engine, index, ingest and query read it.
"""

from dataclasses import dataclass
from enum import StrEnum

from caraway.dtypes.types import DataType
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import AggregateSpec, Operator
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.sources import SourceSpec
from caraway.graph.windows import HoppingWindow, SessionWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a record or of a dataset."""

    name: str
    dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchema:
    """What the records of a topic hold (docs/records.md): `keys` make the Kafka key, `columns` the row.

    `columns` are all columns without the time stamp, keys first; `fingerprint` (32 bit) goes into each record.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    timestamp: str
    fingerprint: int


class TopicKind(StrEnum):
    """What the records of a topic are."""

    EVENTS = "events"
    VERSIONS = "versions"
    AGGREGATE_INPUTS = "contributions"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The topic of a dataset.

    `revised`: its records may be revised or retracted, because a join or changelog comes before; a job that reads it
    turns a row which fails a filter into a retraction instead of dropping it.
    """

    dataset: str
    name: str
    kind: TopicKind
    schema: RecordSchema
    disorder_us: int
    revised: bool = False


class IndexKind(StrEnum):
    """How a dataset is indexed."""

    VERSIONS = "versions"
    AGGREGATE = "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """An index: fed from `topic`, all its entries begin with `asset` (8 bytes).

    `revised` tells that records may be revised (a join or changelog comes before), so that the location of each
    identity is kept. `aggregates` is empty for versions. `fields` are the dataset's columns, keys first, time stamp
    last.

    Of an aggregation: `window` is that of the groupby, if it has one; then the dataset has the key `window` beyond
    those of the records. `along` tells that the time of a record is that of a column; its row has the time stamp too.
    `emits` is the topic to which the index writes the dataset's rows, for jobs that read them.
    """

    dataset: str
    asset: bytes
    kind: IndexKind
    topic: str
    schema: RecordSchema
    revised: bool
    aggregates: tuple[AggregateSpec, ...]
    fields: tuple[Column, ...]
    window: HoppingWindow | SessionWindow | None = None
    along: bool = False
    emits: TopicPlan | None = None

    @property
    def keys(self) -> tuple[Column, ...]:
        """The keys of a lookup: those of the records, and the window if that is a key of the dataset."""
        if self.window is None:
            return self.schema.keys
        return (*self.schema.keys, *(column for column in self.fields if column.name == WINDOW_KEY))


class JobMode(StrEnum):
    """How Spark runs a job."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A streaming job: a pipeline from the topics of its inputs to the topic of its dataset.

    `inputs` are the topics of the datasets in the operator tree. `output` is the topic written. `horizon_us` bounds the
    state that is kept for corrections.
    """

    job_id: str
    dataset: str
    pipeline: str
    operator: Operator
    inputs: tuple[TopicPlan, ...]
    output: TopicPlan
    mode: JobMode
    mode_reason: str
    horizon_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """Rows of a webhook endpoint go to `topic`."""

    connector: WebhookConnector
    source: SourceSpec
    topic: TopicPlan
    fields: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """All that must run for a graph."""

    topics: tuple[TopicPlan, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    ingests: tuple[IngestPlan, ...] = ()
