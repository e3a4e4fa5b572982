"""The number of records that new jobs read before they have caught up, and about how long that and their start take."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from caraway.graph.plan.model import GraphPlan, JobMode, JobPlan
from caraway.graph.plan.slots import shuffles

# Estimates of the records of a backlog that a job reads in a second: if its steps keep no state, if they keep state,
# and if they are in Python. The rates are lower than those that docs/inside/jobs.md measures on two cores, since other
# jobs run at the same time.
PLAIN_RATE = 100_000
STATEFUL_RATE = 25_000
PYTHON_RATE = 10_000
# Estimated seconds from a commit until the queries of its new jobs run: a fixed part, and a part for each new job,
# since Spark plans and compiles each query before its first record. Two new jobs that read 40,000 records were served
# 19, 30 and 39 s after their commit, on two busy cores.
START_S, START_S_PER_JOB = 5.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillEstimate:
    """The history that a new job reads.

    Attributes:
        name: The id of the job.
        records: The number of records to read. The output of another new job isn't known yet, and counts as the records
            that the other one reads.
        seconds: How long that takes, together with the new jobs whose output is read, and with the start of all new
            jobs: an engine starts them side by side, on the same processors.
    """

    name: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Reader:
    """A new job: the topics that it reads, and its records a second."""

    inputs: frozenset[str]
    rate: int


def estimate_backfills(
    plan: GraphPlan, created: Collection[str], records: Mapping[str, int]
) -> tuple[BackfillEstimate, ...]:
    """Return the backfills of the jobs of a plan that are new (`created` has their names in the store).

    `records` has the number of records of each topic; a missing topic has none.
    """
    jobs = [job for job in plan.jobs if job.job_id in created]
    readers = {job.job_id: _Reader(frozenset(t.name for t in job.inputs), rate(job)) for job in jobs}
    writers = {job.output.name: job.job_id for job in jobs}
    writers |= {
        index.emits.name: name
        for index in plan.indexes
        if index.emits is not None and (name := writers.get(index.topic, "")) in readers
    }

    start_s = START_S + START_S_PER_JOB * len(jobs)

    @cache
    def backfill(name: str) -> BackfillEstimate:
        reader = readers[name]
        before = [backfill(writers[t]) for t in sorted(reader.inputs) if writers.get(t, name) != name]
        count = sum(records.get(t, 0) for t in reader.inputs - writers.keys()) + sum(found.records for found in before)
        seconds = count / reader.rate + max((found.seconds for found in before), default=start_s)
        return BackfillEstimate(name=name, records=count, seconds=seconds)

    return tuple(backfill(name) for name in readers)


def rate(job: JobPlan) -> int:
    """Return how many records a second a job reads of a backlog."""
    if job.mode is JobMode.MICRO_BATCH:
        return PYTHON_RATE
    # A job shuffles its rows before each step that keeps some of them.
    return STATEFUL_RATE if shuffles(job.operator, job) else PLAIN_RATE
