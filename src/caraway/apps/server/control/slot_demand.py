"""The slots of Spark that the new jobs of a commit need, beside those that are free."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from caraway.graph.plan.model import GraphPlan, JobMode
from caraway.graph.plan.slots import slots_of, tasks_of
from caraway.process.estimates import counted
from caraway.state.model import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDemand:
    """The slots that the new jobs of a commit need, the number of these jobs, and the slots that are free."""

    needed: int
    jobs: int
    free: int

    def line(self) -> str:
        """Return the line of a summary."""
        free = "1 is free" if self.free == 1 else f"{self.free} are free"
        found = f"slots: the new jobs need {counted(self.needed, 'slot')} of Spark, and {free}"
        if self.needed > self.free:
            return f"{found}. Some won't start until branches or pipelines that nobody needs are deleted"
        more = (self.free - self.needed) * self.jobs // self.needed
        return f"{found}; about {counted(more, 'further job')} like these would find slots"


def find_slot_demand(
    plan: GraphPlan,
    created: Container[str],
    running: Callable[[], Iterable[JobRecord]],
    *,
    partitions: int,
    processors: int | None,
) -> SlotDemand | None:
    """Return what the new jobs of a plan need; None if there are no new ones, or no engine has reported its slots.

    Args:
        plan: The plan of a commit.
        created: The names of its new assets.
        running: Returns the jobs that run, with the reports of their engines; called only if a job is new.
        partitions: Partitions of a new topic.
        processors: How many processors the tasks share; None if unknown.
    """
    needed = [
        slots_of(job, partitions=partitions, tasks=tasks_of(job, partitions=partitions, processors=processors).count)
        for job in plan.jobs
        if job.job_id in created and job.mode is JobMode.REAL_TIME
    ]
    if not needed:
        return None
    # Each engine reports its free slots with each of its jobs; the newest report counts.
    free: dict[object, int] = {}
    for job in sorted(running(), key=lambda job: job.updated_at):
        reported = job.progress.get("slots_free")
        if isinstance(reported, int):
            free[job.progress.get("engine")] = reported
    return SlotDemand(needed=sum(needed), jobs=len(needed), free=sum(free.values())) if free else None
