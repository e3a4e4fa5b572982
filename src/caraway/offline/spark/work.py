"""The work of a query on Spark, as plain data that every task is given."""

from collections.abc import Mapping
from dataclasses import dataclass

from caraway.compute.query.model import KeyPart, LookupStep
from caraway.dataplane.archive.store.reading import Cuts, Part, TopicParts
from caraway.dtypes.types import DecimalType, base_type
from caraway.graph.plan.model import IndexKind, IndexPlan
from caraway.offline.history.aggregates import EXTREMES, AggregateHistory
from caraway.offline.history.records import columns_needed
from caraway.offline.history.versions import VersionHistory
from caraway.offline.history.windows import is_computable
from caraway.offline.queries.model import OfflineRequest
from caraway.offline.spark.stages import Stage
from caraway.state.plans import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedDataset:
    """A dataset whose records are divided.

    Attributes:
        plan: Its index.
        columns: The columns of the topic's rows that are read.
        found: The places of the topic's records.
    """

    plan: IndexPlan
    columns: tuple[str, ...]
    found: TopicParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A query on Spark.

    Attributes:
        name: A name that no other run has.
        folder: The folder of the object store for pieces of rows.
        request: The request.
        commit: The commit that it asks.
        planned: The graph of the commit, and its plan.
        cuts: The offsets up to which topics are read.
        datasets: The datasets whose records are divided, by name. Tasks read all records of the others.
        stages: The stages of the plan.
        divisions: The number of divisions.
        records_bytes: The memory for the records of a dataset and a division; more of them are sorted on the disk.
    """

    name: str
    folder: str
    request: OfflineRequest
    commit: str
    planned: Planned
    cuts: Cuts
    datasets: Mapping[str, DividedDataset]
    stages: tuple[Stage, ...]
    divisions: int
    records_bytes: int


@dataclass(frozen=True, slots=True)
class RecordsTask:
    """A part of a dataset's records, to be divided."""

    dataset: str
    part: Part


def columns_read(plan: IndexPlan, names: list[str], *, known: bool) -> list[str]:
    """Return the columns of a topic's rows from which columns of a dataset are read, also by an index of the query."""
    every = [column.name for column in plan.schema.columns]
    if known or not _in_columns(plan, names):
        return columns_needed(plan, every)
    kind = VersionHistory if plan.kind is IndexKind.VERSIONS else AggregateHistory
    return columns_needed(plan, sorted(kind.columns_of(plan, names)))


def _in_columns(plan: IndexPlan, names: list[str]) -> bool:
    """Return whether no record can make it necessary to read these columns from an index of the query."""
    types = {column.name: column.dtype for column in (*plan.fields, *plan.schema.columns)}
    if any(isinstance(base_type(types[name]), DecimalType) for name in names if name in types):
        return False
    aggregates = {spec.into: spec for spec in plan.aggregates}
    return all(
        is_computable(plan, aggregates[name]) and aggregates[name].function not in EXTREMES
        for name in names
        if name in aggregates
    )


def ordered_keys(plan: IndexPlan, step: LookupStep) -> tuple[KeyPart, ...]:
    """Return the keys of a lookup in the order of the records' keys."""
    parts = {part.key: part for part in step.keys}
    return tuple(parts[key.name] for key in plan.schema.keys)
