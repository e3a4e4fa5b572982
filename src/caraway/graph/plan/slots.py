"""The number of tasks of a job, and so of the Spark slots that it holds: in real-time mode all tasks run all the time.

If too few slots are free, the engine doesn't start the job (`caraway.dataplane.streams.engine.slots`), and tries again
later. An idle task costs next to nothing, so there can be more slots than processors.
"""

from dataclasses import dataclass

from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Input, Join, Latest, Operator
from caraway.graph.plan.model import JobPlan
from caraway.graph.trees import parents

# A step that stores rows has at most this many tasks, unless topics have more partitions. Each task takes a thread and
# a part of the state, and makes the job's pause at a checkpoint longer.
MOST_TASKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """The number of tasks of each step that keeps rows, and the reason for it."""

    count: int
    reason: str


def tasks_of(job: JobPlan, *, partitions: int, processors: int | None) -> Tasks:
    """Return the number of tasks of each step of a job that keeps rows.

    All rows of a key come to one task, on whichever partitions of topics they are, so the number is independent of the
    number of partitions. It can't be changed later, since the state is divided by it.

    Args:
        job: The job.
        partitions: How many partitions topics have.
        processors: How many processors the tasks share; None if that isn't known.
    """
    if not shuffles(job.operator, job):
        return Tasks(count=partitions, reason="no step keeps rows")
    if processors is None:
        return Tasks(count=partitions, reason="as many as topics have partitions")
    if partitions > processors:
        return Tasks(count=processors, reason=f"topics have {partitions} partitions, but more would share a processor")
    side_by_side = min(processors, MOST_TASKS)
    if partitions < side_by_side and _joins(job.operator):
        return Tasks(count=side_by_side, reason="joining takes longer than reading, and there are processors for it")
    return Tasks(count=partitions, reason="as many as topics have partitions")


def slots_of(job: JobPlan, *, partitions: int, tasks: int) -> int:
    """Return the number of tasks that a job has at once.

    Args:
        job: The job.
        partitions: How many partitions topics have.
        tasks: How many tasks each step that keeps rows has.
    """
    inputs = {topic.name for topic in job.inputs}
    return partitions * len(inputs) + tasks * shuffles(job.operator, job)


def _joins(operator: Operator) -> bool:
    return isinstance(operator, Join) or any(_joins(parent) for parent in parents(operator))


def shuffles(operator: Operator, job: JobPlan) -> int:
    """Return the number of shuffles in a tree: one by key before each step that keeps rows."""
    before = sum(shuffles(parent, job) for parent in parents(operator))
    match operator:
        case Join():
            # A left side with keys is shuffled twice: first by its key, since its versions are stored by key, and then
            # by the join key.
            return before + (2 if is_keyed(operator.left, job) else 1)
        case Dedup() | First() | Changelog():
            return before + 1
        case Aggregate() if is_keyed(operator.of, job):
            return before + 1
        case _:
            return before


def is_keyed(operator: Operator, job: JobPlan) -> bool:
    """Return whether the output of a step consists of versions of keys."""
    match operator:
        case Input():
            return any(topic.schema.keys for topic in job.inputs if topic.dataset == operator.dataset)
        case First() | Latest() | Aggregate():
            return True
        case Changelog():
            return False
        case _:
            return is_keyed(parents(operator)[0], job)
