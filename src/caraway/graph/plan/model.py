"""The physical plan of a graph: topics, jobs and indexes, as plain data.

`caraway.graph.plan.planner` makes it from a graph; engine, index, ingest and query read it.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from caraway.dtypes.types import DataType
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.operators import Operator
from caraway.graph.schemas import WINDOW_KEY
from caraway.graph.sources import SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import HoppingWindow, SessionWindow

# The number of hexadecimal digits of the content hash in the names of topics and jobs: 48 bits, so that two definitions
# of one dataset practically never collide.
NAME_DIGITS = 12
# The number of hexadecimal digits of the hash by which `_name_of_branch` tells apart branches whose names would become
# the same text.
BRANCH_DIGITS = 8
_HASH, _GENERATION = rf"\.[0-9a-f]{{{NAME_DIGITS}}}", rf"(?:\.[0-9]{{1,{NAME_DIGITS - 1}}})?"
# The end of the name of a topic, in any of its generations (`caraway.state.blueprints`): the dataset and the hash of
# its definition.
DEFINITION = re.compile(rf"([^.]+{_HASH}){_GENERATION}$")
# The whole name of any topic of the platform, which no source may read and no sink may write.
_OWN_TOPIC = re.compile(rf"caraway\..*|.*{_HASH}{_GENERATION}")
# `definition_of` caches its result for at most this many names of topics, far more than a deployment has.
KEPT_DEFINITIONS = 10_000
# A `check_id` (see `CheckPlan`), the key under which counts of checked rows are stored, has this many hexadecimal
# digits of a hash of the dataset's expectations.
CHECK_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a record or of a dataset."""

    name: str
    dtype: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchema:
    """The columns of the records of a topic (docs/inside/records.md): `keys` make the Kafka key, `columns` the row.

    `columns` are all columns without the timestamp, keys first; `fingerprint` (32 bit) goes into each record.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    timestamp: str
    fingerprint: int


class TopicKind(StrEnum):
    """The kind of records on a topic."""

    EVENTS = "events"
    VERSIONS = "versions"
    AGGREGATE_INPUTS = "contributions"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The topic of a dataset.

    If `revised` is set, records of the topic may be revised or retracted, because a join or changelog precedes it. A
    job that reads such a topic turns a row which fails a filter into a retraction instead of dropping it.
    """

    dataset: str
    name: str
    kind: TopicKind
    schema: RecordSchema
    disorder_us: int
    revised: bool = False


class IndexKind(StrEnum):
    """The two kinds of index: of versions, and of aggregates."""

    VERSIONS = "versions"
    AGGREGATE = "aggregate"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """An index: fed from `topic`, all its entries begin with `asset` (8 bytes).

    `schema` is that of the topic's records. If `revised` is set, records may be revised (a join or changelog
    precedes), so the index keeps the location of each identity. `aggregates` is empty for an index of versions.
    `fields` are the dataset's columns: keys first, timestamp last.

    The other attributes belong to aggregations. `window` is that of the groupby, if it has one; the dataset then has
    the key `window` besides the keys of the records. If `along` is set, the time of a record comes from the column that
    the groupby names by `along`, and its row contains the timestamp as well. If `by_clock` is set, discrete windows
    close by the clock as well. `emits` is the topic to which the index writes the dataset's rows, for jobs that read
    them.
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
    by_clock: bool = False
    emits: TopicPlan | None = None

    @property
    def keys(self) -> tuple[Column, ...]:
        """The key columns of a lookup: those of the records, and the window if the dataset has it as a key."""
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


@lru_cache(maxsize=KEPT_DEFINITIONS)
def definition_of(topic: str) -> str:
    """Return the dataset of a topic with the hash of its definition, or the topic's name if it has none.

    All generations of a topic have the same definition.
    """
    found = DEFINITION.search(topic)
    return topic if found is None else found[1]


def is_own_topic(topic: str) -> bool:
    """Return whether a topic has a name of the platform's own, so that no source reads and no sink writes it."""
    return _OWN_TOPIC.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """Rows of a source of a dataset go to `topic`.

    `longest_window_us` is the longest of the windows in which its rows count; None if they also count elsewhere.
    """

    source: SourceSpec
    dataset: DatasetSpec
    topic: TopicPlan
    fields: tuple[Column, ...]
    longest_window_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """The changes of a dataset go from `topic` to a sink.

    `sink_id` stands for the dataset, its definition and that of the sink, and if the sink creates what it writes, also
    for the branch. `branch` is the branch of the commit that has it (`on_branch`).
    """

    sink_id: str
    sink: SinkSpec
    dataset: DatasetSpec
    topic: TopicPlan
    fields: tuple[Column, ...]
    branch: str = ""

    @property
    def suffix(self) -> str:
        """The ending of the names of things that sinks create, which differs for each branch and version."""
        return f"_{_name_of_branch(self.branch)}_v{self.dataset.version}"

    @property
    def target(self) -> str:
        """The name of the thing that is written, as people read it."""
        return self.sink.connector.target(self.suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """The rows of a dataset are checked against its expectations, and its columns are profiled.

    The rows are on `topic`, and `schema` is theirs. If `repeats` is set, a job or an index writes the topic, so that a
    record may come again after a restart. Keys are erased on the topic `erased_on`. The suite of a dataset that is only
    profiled is empty.
    """

    dataset: DatasetSpec
    suite: ExpectationSuite
    topic: TopicPlan
    schema: RecordSchema
    repeats: bool
    erased_on: str

    @property
    def profiled(self) -> bool:
        """True if profiles of the columns are kept."""
        return self.dataset.profiled

    @property
    def check_id(self) -> str:
        """The name under which rows are counted: the topic, with a hash of the expectations and of being profiled.

        So the counts begin at zero when the expectations change, and also when the dataset is profiled from now on, or
        isn't any more, since one pass counts and profiles.
        """
        texts = [f"{item.name} {item.arguments}" for item in self.suite.expectations]
        texts += ["profiled"] if self.profiled else []
        digest = hashlib.sha256("\n".join([str(self.suite.version), *texts]).encode()).hexdigest()
        return f"{self.topic.name}/{digest[:CHECK_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """All that must run for a graph."""

    topics: tuple[TopicPlan, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    ingests: tuple[IngestPlan, ...] = ()
    sinks: tuple[SinkPlan, ...] = ()
    checks: tuple[CheckPlan, ...] = ()


def on_branch(plan: GraphPlan, branch: str) -> GraphPlan:
    """Return the plan of a commit on a branch.

    Two branches write the things that a sink creates, such as tables, under names of their own. Things that exist
    already, such as topics and servers, get each change once, however many branches share the dataset.
    """
    return replace(plan, sinks=tuple(_sink_on(sink, branch) for sink in plan.sinks)) if plan.sinks else plan


def _sink_on(plan: SinkPlan, branch: str) -> SinkPlan:
    sink_id = f"{plan.sink_id}.{_name_of_branch(branch)}" if plan.sink.create else plan.sink_id
    return replace(plan, sink_id=sink_id, branch=branch)


def _name_of_branch(branch: str) -> str:
    """Return the name of a branch with letters, digits and underscores only; two branches never get the same one."""
    safe = re.sub(r"[^A-Za-z0-9]", "_", branch)
    # A branch name with other characters than letters and digits gets a hash of itself as a suffix, since the replaced
    # characters might make it equal to another name.
    return safe if safe == branch else f"{safe}_{hashlib.sha256(branch.encode()).hexdigest()[:BRANCH_DIGITS]}"
