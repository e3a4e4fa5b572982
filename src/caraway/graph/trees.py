"""Walks over operator trees: the inputs of an operator, the datasets of a tree, and the end of a pipeline."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from caraway.graph import operators as ops
from caraway.graph.aggregates import TRAITS, defaults_if_unseen
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import ContinuousWindow


def parents(operator: ops.Operator) -> tuple[ops.Operator, ...]:
    """Return the operators whose rows an operator consumes; a join's right side is a dataset, and not among them."""
    match operator:
        case ops.Input():
            return ()
        case ops.Union():
            return (operator.left, operator.right)
        case ops.Join():
            return (operator.left,)
        case _:
            return (operator.of,)


def absent_values(dataset: DatasetSpec) -> dict[str, object]:
    """Return the values (stored form) that fields of a dataset have for a key that was never seen; null elsewhere."""
    operator = dataset.pipelines[0].operator if dataset.pipelines else None
    return defaults_if_unseen(operator.aggregates) if isinstance(operator, ops.Aggregate) else {}


def with_parents(operator: ops.Operator, change: Callable[[ops.Operator], ops.Operator]) -> ops.Operator:
    """Return an operator with each of its parents replaced by the result of `change` for it."""
    match operator:
        case ops.Input():
            return operator
        case ops.Union():
            return replace(operator, left=change(operator.left), right=change(operator.right))
        case ops.Join():
            return replace(operator, left=change(operator.left))
        case _:
            return replace(operator, of=change(operator.of))


def datasets_read(operator: ops.Operator) -> tuple[str, ...]:
    """Return the names of the datasets that an operator tree reads, each once, in order of appearance."""
    names = [name for parent in parents(operator) for name in datasets_read(parent)]
    if isinstance(operator, ops.Input):
        names.append(operator.dataset)
    if isinstance(operator, ops.Join):
        names.append(operator.right)
    return tuple(dict.fromkeys(names))


def aggregates_in(operator: ops.Operator) -> Iterator[ops.Aggregate]:
    """Yield the aggregates of an operator tree."""
    if isinstance(operator, ops.Aggregate):
        yield operator
    for parent in parents(operator):
        yield from aggregates_in(parent)


def is_terminal(operator: ops.Operator) -> bool:
    """Return whether a dataset is terminal whose pipeline ends with `operator`: its values are computed when read.

    Nothing can be computed from such a dataset, even if its results are emitted.
    """
    return isinstance(operator, ops.Aggregate) and any(
        isinstance(aggregate.window, ContinuousWindow) or TRAITS[aggregate.function].changes_while_read
        for aggregate in operator.aggregates
    )


def without_pickles(operator: ops.Operator) -> ops.Operator:
    """Return the tree with users' functions as text only, the part that counts for a definition's identity.

    Traced expressions are removed too: a later version may trace more functions, and the definition is the same.
    """
    bare = with_parents(operator, without_pickles)
    if isinstance(bare, (ops.FilterFunction, ops.AssignFunction)):
        return replace(bare, function=replace(bare.function, pickled=b""), traced=None)
    if isinstance(bare, ops.Transform):
        return replace(bare, function=replace(bare.function, pickled=b""))
    return bare


def reached(start: Iterable[str], edges: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the names that are reached from `start`, without those of `start`, each once, the nearest first."""
    return (name for name, steps in steps_from(start, edges).items() if steps)


def steps_from(start: Iterable[str], edges: Mapping[str, Sequence[str]], most: float = math.inf) -> dict[str, int]:
    """Return the names within `most` steps of `start`, each with the number of its steps, the nearest first."""
    steps = dict.fromkeys(start, 0)
    waiting = deque(steps)
    while waiting:
        here = waiting.popleft()
        if steps[here] >= most:
            continue
        for name in edges.get(here, ()):
            if name not in steps:
                steps[name] = steps[here] + 1
                waiting.append(name)
    return steps


def following(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return for each first name of the pairs the second ones, in their order."""
    found: dict[str, list[str]] = {}
    for before, after in pairs:
        found.setdefault(before, []).append(after)
    return found
