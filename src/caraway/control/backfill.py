"""The number of records that new jobs read before they have caught up, and about how long that takes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from caraway.graph.operators import Changelog, Join, Operator
from caraway.graph.trees import parents
from caraway.plan.model import GraphPlan, JobMode, JobPlan

# How many records of a backlog a job reads in a second: with steps that keep no state, with such that do, and in
# Python. The rates are lower than those that docs/spark.md measures on two cores, since other jobs run at the same
# time.
PLAIN_RATE = 100_000
STATEFUL_RATE = 25_000
PYTHON_RATE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The history that a new job reads.

    Attributes:
        job: The job.
        records: The number of records to read. The output of another new job isn't known yet, and counts as the records
            that this other job reads.
        seconds: How long the job takes, together with the new jobs whose output it reads.
    """

    job: JobPlan
    records: int
    seconds: float


def backfills(plan: GraphPlan, created: Collection[str], records: Mapping[str, int]) -> tuple[Backfill, ...]:
    """Return the backfills of the jobs of a plan that are new (`created` has their ids).

    `records` has the number of records of each topic; a missing topic has none.
    """
    new = {job.job_id: job for job in plan.jobs if job.job_id in created}
    writers = {job.output.name: job_id for job_id, job in new.items()} | {
        index.emits.name: writer.job_id
        for index in plan.indexes
        if index.emits is not None
        for writer in new.values()
        if writer.output.name == index.topic
    }

    @cache
    def backfill(job_id: str) -> Backfill:
        job = new[job_id]
        inputs = {topic.name for topic in job.inputs}
        before = [backfill(writers[name]) for name in sorted(inputs) if writers.get(name, job_id) != job_id]
        count = sum(records.get(name, 0) for name in inputs - writers.keys()) + sum(found.records for found in before)
        seconds = count / rate(job) + max((found.seconds for found in before), default=0.0)
        return Backfill(job=job, records=count, seconds=seconds)

    return tuple(backfill(job_id) for job_id in new)


def rate(job: JobPlan) -> int:
    """Return how many records a second a job reads of a backlog."""
    if job.mode is JobMode.MICRO_BATCH:
        return PYTHON_RATE
    return STATEFUL_RATE if _is_stateful(job.operator) else PLAIN_RATE


def duration(seconds: float) -> str:
    """Return a duration as text, in one number."""
    for name, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {name}"
    return f"about {max(seconds, 1):.0f} s"


def _is_stateful(operator: Operator) -> bool:
    return isinstance(operator, Join | Changelog) or any(_is_stateful(parent) for parent in parents(operator))
