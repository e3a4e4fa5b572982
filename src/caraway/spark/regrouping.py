"""Which joins tell where a row belongs: what they say in the first batch after a restart must be heard there.

In a run that a crash ended a row may have been joined with something else, and stood where that had put it.
"""

from collections.abc import Iterator

from caraway.graph.operators import Aggregate, Changelog, Dedup, First, Input, Join, Latest, Operator
from caraway.graph.trees import parents
from caraway.plan.model import JobPlan, TopicKind


def regrouping_joins(plan: JobPlan) -> frozenset[Join]:
    """Return the joins whose columns may name a group of rows that are looked at together, or a key of the output.

    Of contributions only indexes are readers, which find a row by its identity, wherever a join has put it.
    """
    keyed = {topic.dataset for topic in plan.inputs if topic.schema.keys}
    names = plan.output.kind is not TopicKind.CONTRIBUTIONS
    return frozenset(_joins(plan.operator, keyed, names=names))


def _joins(step: Operator, keyed: set[str], *, names: bool) -> Iterator[Join]:
    if isinstance(step, Join) and names:
        yield step
    match step:
        case Dedup() | First() | Latest() | Changelog():
            grouped = True
        case Join():
            grouped = _is_keyed(step.left, keyed)
        case _:
            grouped = False
    for parent in parents(step):
        yield from _joins(parent, keyed, names=names or grouped)


def _is_keyed(step: Operator, keyed: set[str]) -> bool:
    match step:
        case Input():
            return step.dataset in keyed
        case First() | Latest() | Aggregate():
            return True
        case Changelog():
            return False
        case _:
            return _is_keyed(parents(step)[0], keyed)
