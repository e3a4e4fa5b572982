"""How many of Spark's slots a job holds: in real-time mode all of its tasks run at the same time, for good.

If they aren't to be had, Spark refuses the job (CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT) and it is tried again. An idle
task costs next to nothing, so slots are no processors.
"""

from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Input, Join, Latest, Operator
from caraway.graph.trees import parents
from caraway.plan.model import JobPlan


def slots_of(job: JobPlan, partitions: int) -> int:
    """Return the number of tasks that a job has at once, if topics and stateful steps have so many partitions."""
    inputs = {topic.name for topic in job.inputs}
    return partitions * (len(inputs) + shuffles(job.operator, job))


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
