"""The number of records that new jobs and indexes read before they have caught up, and about how long that takes.

An index counts only if it computes a pipeline itself: other indexes read what a job or a source writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from caraway.graph.operators import Changelog, Join, Operator
from caraway.graph.trees import parents
from caraway.plan.model import GraphPlan, IndexPlan, JobMode, JobPlan

# How many records of a backlog an index computes a pipeline for in a second.
INDEX_RATE = 20_000
# How many records of a backlog a job reads in a second: with steps that keep no state, with such that do, and in
# Python. The rates are lower than those that docs/spark.md measures on two cores, since other jobs run at the same
# time.
PLAIN_RATE = 100_000
STATEFUL_RATE = 25_000
PYTHON_RATE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The history that a new job or index reads.

    Attributes:
        name: The id of the job, or the asset of the index in hexadecimal digits.
        reader: The name of the reader, for people.
        records: The number of records to read. The output of another new job or index isn't known yet, and counts as
            the records that the other one reads.
        seconds: How long that takes, together with the new jobs and indexes whose output is read.
    """

    name: str
    reader: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Reader:
    """A new job or index: how people call it, the topics that it reads, and its records a second."""

    shown: str
    inputs: frozenset[str]
    rate: int


def backfills(plan: GraphPlan, created: Collection[str], records: Mapping[str, int]) -> tuple[Backfill, ...]:
    """Return the backfills of the jobs and indexes of a plan that are new (`created` has their names in the store).

    `records` has the number of records of each topic; a missing topic has none.
    """
    jobs = [job for job in plan.jobs if job.job_id in created]
    indexes = [index for index in plan.indexes if index.direct is not None and index.asset.hex() in created]
    readers = {
        **{job.job_id: _Reader(job.job_id, frozenset(t.name for t in job.inputs), rate(job)) for job in jobs},
        **{
            index.asset.hex(): _Reader(f"the index of {index.dataset}", frozenset({index.topic}), INDEX_RATE)
            for index in indexes
        },
    }
    writers = {job.output.name: job.job_id for job in jobs}
    writers |= {
        index.emits.name: name
        for index in plan.indexes
        if index.emits is not None and (name := _source_of(index, writers)) in readers
    }

    @cache
    def backfill(name: str) -> Backfill:
        reader = readers[name]
        before = [backfill(writers[t]) for t in sorted(reader.inputs) if writers.get(t, name) != name]
        count = sum(records.get(t, 0) for t in reader.inputs - writers.keys()) + sum(found.records for found in before)
        seconds = count / reader.rate + max((found.seconds for found in before), default=0.0)
        return Backfill(name=name, reader=reader.shown, records=count, seconds=seconds)

    return tuple(backfill(name) for name in readers)


def _source_of(index: IndexPlan, writers: Mapping[str, str]) -> str:
    """Return the name of the job or index that computes the rows which an index emits; "" if that isn't a new job."""
    return index.asset.hex() if index.direct is not None else writers.get(index.topic, "")


def rate(job: JobPlan) -> int:
    """Return how many records a second a job reads of a backlog."""
    if job.mode is JobMode.MICRO_BATCH:
        return PYTHON_RATE
    return STATEFUL_RATE if _is_stateful(job.operator) else PLAIN_RATE


def _is_stateful(operator: Operator) -> bool:
    return isinstance(operator, Join | Changelog) or any(_is_stateful(parent) for parent in parents(operator))
