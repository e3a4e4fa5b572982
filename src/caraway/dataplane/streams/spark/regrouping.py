"""The joins of a job whose columns decide to which group, or to which key of the output, a row goes.

A failed attempt may have joined a row with another match, and so sent it to another group. In the first batch after a
restart such a join therefore retracts the row with each match that it may have had (docs/inside/records.md, "After a
restart").
"""

from collections.abc import Iterator

from caraway.graph import operators as ops
from caraway.graph.plan.model import JobPlan, TopicKind
from caraway.graph.trees import parents

# The columns of a step's rows that later steps use as a group, a join key or a key of the output; None if any column
# may be used so.
_Names = frozenset[str] | None


def regrouping_joins(plan: JobPlan) -> frozenset[ops.Join]:
    """Return the joins whose columns may name a group of rows of a later step, or a key of the output.

    Aggregate inputs have only indexes as readers. There the keys of the aggregate matter: a shard of a divided index
    reads the records of some keys only, so it can't find a row by its identity after a join has moved it to a key of
    another shard.
    """
    keyed = {topic.dataset for topic in plan.inputs if topic.schema.keys}
    step = plan.operator
    if isinstance(step, ops.Aggregate) and plan.output.kind is TopicKind.AGGREGATE_INPUTS:
        return frozenset(_joins(step.of, keyed, frozenset(step.keys)))
    return frozenset(_joins(step, keyed, None))


def _joins(step: ops.Operator, keyed: set[str], names: _Names) -> Iterator[ops.Join]:
    match step:
        case ops.Join() if _is_keyed(step.left, keyed):
            # If the left side of a join has keys, the join also makes records at the times of right versions. A failed
            # attempt may have made such a record from another left row, so any column of the record may differ.
            if names != frozenset():
                yield step
            before: _Names = None
        case ops.Join() if names is None or names & set(step.fields):
            yield step
            before = None if names is None else names - set(step.fields) | set(step.left_on)
        case ops.Dedup() | ops.First() | ops.Latest() | ops.Changelog() | ops.Aggregate():
            before = None
        case _:
            before = _before(step, names)
    for parent in parents(step):
        yield from _joins(parent, keyed, before)


def _before(step: ops.Operator, names: _Names) -> _Names:
    """Return the columns of a step's input from which it computes the columns `names`."""
    match step:
        case ops.Assign() | ops.AssignFunction() | ops.Transform() if names is not None and names & _computed(
            step, names
        ):
            # At least one of the columns is computed here, and its expression may read any column of the step's input.
            return None
        case ops.Rename() if names is not None:
            for old, new in reversed(step.pairs):
                names = frozenset(old if name == new else name for name in names)
            return names
        case _:
            return names


def _computed(step: ops.Assign | ops.AssignFunction | ops.Transform, names: frozenset[str]) -> frozenset[str]:
    match step:
        case ops.Assign():
            return frozenset(column.name for column in step.columns)
        case ops.AssignFunction():
            return frozenset({step.column})
        case ops.Transform():
            return names


def _is_keyed(step: ops.Operator, keyed: set[str]) -> bool:
    match step:
        case ops.Input():
            return step.dataset in keyed
        case ops.First() | ops.Latest() | ops.Aggregate():
            return True
        case ops.Changelog():
            return False
        case _:
            return _is_keyed(parents(step)[0], keyed)
