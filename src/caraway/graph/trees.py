"""Walks over operator trees: the inputs of an operator, the datasets of a tree, and the end of a pipeline."""

from dataclasses import replace

from caraway.graph.aggregates import TRAITS
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Explode,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.windows import ContinuousWindow


def parents(operator: Operator) -> tuple[Operator, ...]:
    """Return the operators whose rows an operator consumes; a join's right side is a dataset, and not among them."""
    match operator:
        case Input():
            return ()
        case Union():
            return (operator.left, operator.right)
        case Join():
            return (operator.left,)
        case (
            Filter()
            | FilterFunction()
            | Assign()
            | AssignFunction()
            | Transform()
            | Select()
            | Drop()
            | DropNull()
            | Rename()
            | Explode()
            | Dedup()
            | First()
            | Latest()
            | Aggregate()
            | Changelog()
        ):
            return (operator.of,)


def datasets_read(operator: Operator) -> tuple[str, ...]:
    """Return the names of the datasets that an operator tree reads, each once, in order of appearance."""
    names = [name for parent in parents(operator) for name in datasets_read(parent)]
    if isinstance(operator, Input):
        names.append(operator.dataset)
    if isinstance(operator, Join):
        names.append(operator.right)
    return tuple(dict.fromkeys(names))


def is_terminal(operator: Operator) -> bool:
    """Return whether a dataset whose pipeline ends so is terminal: its values are computed when they are read.

    Nothing can be computed from such a dataset, even if its results are emitted.
    """
    return isinstance(operator, Aggregate) and any(
        isinstance(aggregate.window, ContinuousWindow) or TRAITS[aggregate.function].changes_while_read
        for aggregate in operator.aggregates
    )


def without_pickles(operator: Operator) -> Operator:
    """Return the tree with users' functions as text only, the part that counts for a definition's identity.

    Traced expressions are removed too: a later version may trace more functions, and the definition is the same.
    """
    if isinstance(operator, Input):
        return operator
    if isinstance(operator, Union):
        return replace(operator, left=without_pickles(operator.left), right=without_pickles(operator.right))
    if isinstance(operator, Join):
        return replace(operator, left=without_pickles(operator.left))
    bare = replace(operator, of=without_pickles(operator.of))
    if isinstance(bare, (FilterFunction, AssignFunction)):
        return replace(bare, function=replace(bare.function, pickled=b""), traced=None)
    if isinstance(bare, Transform):
        return replace(bare, function=replace(bare.function, pickled=b""))
    return bare
