"""How many tasks a job has, and so how many of Spark's slots it holds: in real-time mode all run at once, for good.

If they aren't to be had, Spark refuses the job (CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT) and it is tried again. An idle
task costs next to nothing, so slots are no processors.
"""

from dataclasses import dataclass

from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Input, Join, Latest, Operator
from caraway.graph.trees import parents
from caraway.plan.model import JobPlan

# Of a step that keeps rows, unless topics have more partitions: each is a thread, a part of the state and of the pause
# at a checkpoint.
MOST_TASKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """How many tasks a step of a job has that keeps rows, and why so many."""

    count: int
    reason: str


def tasks_of(job: JobPlan, *, partitions: int, processors: int | None) -> Tasks:
    """Pick the number of tasks of each step of a job that keeps rows.

    A key's rows all come to one task, wherever they lie in topics, so this number is free. It can't be changed later:
    state is kept by it.

    Args:
        job: The job.
        partitions: How many partitions topics have.
        processors: How many processors tasks share; None if that isn't known.
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
        tasks: How many tasks a step has that keeps rows.
    """
    inputs = {topic.name for topic in job.inputs}
    return partitions * len(inputs) + tasks * shuffles(job.operator, job)


def _joins(operator: Operator) -> bool:
    return isinstance(operator, Join) or any(_joins(parent) for parent in parents(operator))


def shuffles(operator: Operator, job: JobPlan) -> int:
    """Return how often rows change hands in a tree: before each step that keeps some of them, by its keys."""
    before = sum(shuffles(parent, job) for parent in parents(operator))
    match operator:
        case Join():
            # What is known of each left key first, if that is a table; then the join.
            return before + (2 if is_keyed(operator.left, job) else 1)
        case Dedup() | First() | Changelog():
            return before + 1
        case Aggregate() if is_keyed(operator.of, job):
            return before + 1
        case _:
            return before


def is_keyed(operator: Operator, job: JobPlan) -> bool:
    """Tell whether the output of a step is versions of keys."""
    match operator:
        case Input():
            return any(topic.schema.keys for topic in job.inputs if topic.dataset == operator.dataset)
        case First() | Latest() | Aggregate():
            return True
        case Changelog():
            return False
        case _:
            return is_keyed(parents(operator)[0], job)
