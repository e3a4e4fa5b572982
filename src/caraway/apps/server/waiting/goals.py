"""The positions that jobs and indexes must reach on topics so that a query sees the rows accepted before a moment.

The walk follows the plan. At first only the goals of topics that no job writes are known: their ends at that moment.
When a job has processed all of its inputs up to their goals, all rows that follow from them are on its output topic, so
the goal of that topic is known as well; the same holds for an index that writes rows of aggregates for jobs. The rows
are served when each index has reached the goal of its topic.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.positions import Offsets
from caraway.graph.plan.model import GraphPlan, IndexPlan, JobPlan
from caraway.state.model import JobRecord, JobState

# A goal on a topic: for each partition the offset behind the last record that must be processed.
Goal = Mapping[int, int]
Ends = Callable[[Iterable[str]], Offsets]
# A function that returns the goal of a job's output topic, or None if the markers of the wait
# (`caraway.apps.server.waiting.markers`) haven't arrived there yet.
Arrived = Callable[[JobPlan], Goal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaggingPart:
    """A commit, job or index that hasn't reached its goal.

    Attributes:
        kind: "commit", "job" or "index".
        name: The id of the commit or job, or the asset of the index.
        dataset: The dataset that it computes or serves; empty for a commit.
        records: The number of records that it is behind; None if that isn't known.
        reason: The reason of the delay, for people.
    """

    kind: str
    name: str
    dataset: str
    records: int | None
    reason: str


def source_topics(plan: GraphPlan) -> frozenset[str]:
    """Return the topics of a plan that neither a job nor an index writes."""
    written = {job.output.name for job in plan.jobs} | {
        index.emits.name for index in plan.indexes if index.emits is not None
    }
    topics = {topic.name for topic in plan.topics}
    read = {topic.name for job in plan.jobs for topic in job.inputs} | {index.topic for index in plan.indexes}
    return frozenset((topics | read) - written)


@dataclass(slots=True)
class Goals:
    """The goals of the topics of a plan, as far as they are known."""

    plan: GraphPlan
    known: dict[str, Goal] = field(default_factory=dict)

    def advance(
        self, ends: Ends, indexes: Sequence[IndexStatus], jobs: Collection[JobRecord], arrived: Arrived
    ) -> None:
        """Compute the goals of further topics: those behind jobs and indexes that have reached theirs."""
        records = {job.job_id: job for job in jobs}
        statuses = {status.asset: status for status in indexes}
        found = True
        while found:
            found = False
            for job in self.plan.jobs:
                if job.output.name in self.known or not self.is_due(job):
                    continue
                goal = arrived(job)
                if goal is None and has_committed(job, records.get(job.job_id), self.known):
                    goal = ends([job.output.name]).get(job.output.name)
                if goal is not None:
                    self.known[job.output.name] = goal
                    found = True
            for index in self.plan.indexes:
                if index.emits is None or index.emits.name in self.known or index.topic not in self.known:
                    continue
                # An index counts a record as processed only when the rows of aggregates that follow from it are durable
                # on their topic. So if the index has reached its goal, that topic has all of these rows now, and its
                # end is the goal.
                if not self._behind(index, statuses.get(index.asset.hex())):
                    self.known[index.emits.name] = ends([index.emits.name]).get(index.emits.name, {})
                    found = True

    @property
    def parts(self) -> int:
        """The number of jobs and indexes to wait for."""
        return len(self.plan.jobs) + len(self.plan.indexes)

    def done(self, indexes: Sequence[IndexStatus]) -> int:
        """Return how many jobs and indexes have reached their goals."""
        statuses = {status.asset: status for status in indexes}
        jobs = sum(job.output.name in self.known for job in self.plan.jobs)
        reached = (
            index.topic in self.known and not self._behind(index, statuses.get(index.asset.hex()))
            for index in self.plan.indexes
        )
        return jobs + sum(reached)

    def is_due(self, job: JobPlan) -> bool:
        """Return whether the goals of all inputs of a job are known."""
        return all(topic.name in self.known for topic in job.inputs)

    def lagging(self, indexes: Sequence[IndexStatus], jobs: Collection[JobRecord]) -> list[LaggingPart]:
        """Return the parts that lag, without those that only wait for another part of that list."""
        records = {job.job_id: job for job in jobs}
        statuses = {status.asset: status for status in indexes}
        found = [
            _job_lag(job, records.get(job.job_id))
            for job in self.plan.jobs
            if job.output.name not in self.known and self.is_due(job)
        ]
        for index in self.plan.indexes:
            if index.topic not in self.known:
                continue
            status = statuses.get(index.asset.hex())
            behind = self._behind(index, status)
            if behind:
                found.append(_index_lag(index, status, behind))
        return found

    def _behind(self, index: IndexPlan, status: IndexStatus | None) -> int:
        """Return how many messages an index is behind its goal; all of them if it isn't followed yet.

        An index in whose database rows of aggregates may wait to be sent is at least one message behind.
        """
        offsets = {} if status is None else status.offsets
        behind = sum(max(0, goal - offsets.get(partition, 0)) for partition, goal in self.known[index.topic].items())
        return max(behind, int(status is not None and status.unsent))


def has_committed(job: JobPlan, record: JobRecord | None, goals: Mapping[str, Goal]) -> bool:
    """Return whether a job has reported a position at or behind the goals of its inputs."""
    if record is None:
        return False
    positions = record.progress.get("positions")
    if not isinstance(positions, dict):
        return False
    return all(
        int((positions.get(topic.name) or {}).get(str(partition), 0)) >= goal
        for topic in job.inputs
        for partition, goal in goals[topic.name].items()
        if goal
    )


def _job_lag(job: JobPlan, record: JobRecord | None) -> LaggingPart:
    records = None
    if record is None:
        reason = "no engine has taken it yet"
    elif record.state is JobState.FAILING:
        reason = f"it fails: {record.error}"
    elif record.state is not JobState.RUNNING:
        reason = f"it is {record.standstill}"
    else:
        reason = "it has not shown yet that it has done all rows"
        reported = record.progress.get("lag_records")
        records = reported if isinstance(reported, int) and reported else None
    return LaggingPart(kind="job", name=job.job_id, dataset=job.dataset, records=records, reason=reason)


def _index_lag(index: IndexPlan, status: IndexStatus | None, behind: int) -> LaggingPart:
    if status is not None and status.unsent:
        reason = "rows that it has computed aren't on their topic yet"
    elif status is not None:
        behind = round(behind * status.records_per_message)
        reason = f"it is {behind:,} records behind"
    elif index.emits is not None:
        reason = "this server doesn't write its rows; another server may"
    else:
        reason = "the index isn't followed yet"
    return LaggingPart(kind="index", name=index.asset.hex(), dataset=index.dataset, records=behind, reason=reason)
