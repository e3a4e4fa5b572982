"""Which joins tell where a row belongs: what they say in the first batch after a restart must be heard there.

In a run that a crash ended a row may have been joined with something else, and stood where that had put it.
"""

from collections.abc import Iterator

from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignFunction,
    Changelog,
    Dedup,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Rename,
    Transform,
)
from caraway.graph.trees import parents
from caraway.plan.model import JobPlan, TopicKind

# The columns of a step's rows that tell further on to which group, join key or key of the output a row belongs; None:
# any of them may.
_Names = frozenset[str] | None


def regrouping_joins(plan: JobPlan) -> frozenset[Join]:
    """Return the joins whose columns may name a group of rows that are looked at together, or a key of the output.

    Of aggregate inputs only indexes are readers. One that is divided hears of some keys only, so it can't find a row by
    its identity wherever a join has put it.
    """
    keyed = {topic.dataset for topic in plan.inputs if topic.schema.keys}
    step = plan.operator
    if isinstance(step, Aggregate) and plan.output.kind is TopicKind.AGGREGATE_INPUTS:
        return frozenset(_joins(step.of, keyed, frozenset(step.keys)))
    return frozenset(_joins(step, keyed, None))


def _joins(step: Operator, keyed: set[str], names: _Names) -> Iterator[Join]:
    match step:
        case Join() if _is_keyed(step.left, keyed):
            # Where the right side changes, the row of the left one may be another, too.
            if names != frozenset():
                yield step
            before: _Names = None
        case Join() if names is None or names & set(step.fields):
            yield step
            before = None if names is None else names - set(step.fields) | set(step.left_on)
        case Dedup() | First() | Latest() | Changelog() | Aggregate():
            before = None
        case _:
            before = _before(step, names)
    for parent in parents(step):
        yield from _joins(parent, keyed, before)


def _before(step: Operator, names: _Names) -> _Names:
    """Return the columns behind a step's input that `names` are made of."""
    match step:
        case Assign() | AssignFunction() | Transform() if names is not None and names & _computed(step, names):
            # Of whatever the expression reads.
            return None
        case Rename() if names is not None:
            for old, new in reversed(step.pairs):
                names = frozenset(old if name == new else name for name in names)
            return names
        case _:
            return names


def _computed(step: Assign | AssignFunction | Transform, names: frozenset[str]) -> frozenset[str]:
    match step:
        case Assign():
            return frozenset(column.name for column in step.columns)
        case AssignFunction():
            return frozenset({step.column})
        case Transform():
            return names


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
