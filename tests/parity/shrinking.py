"""From a case that differs to a small one that does: simple greedy steps, many tried in one run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from caraway.graph.operators import Aggregate, Assign, Input, Join, Operator, Union
from caraway.graph.trees import datasets_read
from tests.parity.comparing import Difference
from tests.parity.graphs import REFUSALS, Case, check, derived
from tests.parity.traces import Arrival

#: Cases that are tried together, and how often.
TOGETHER = 8
ROUNDS = 12

# A function that runs cases and returns the differences of those that differ.
Try = Callable[[Sequence[Case]], Sequence[Difference]]


def shrink(difference: Difference, attempt: Try, tell: Callable[[str], None]) -> Difference:
    """Make a difference small.

    Args:
        difference: The difference that was found.
        attempt: A function that runs some cases and returns their differences.
        tell: A function that takes lines about the progress.
    """
    smallest = difference
    for number in range(ROUNDS):
        candidates = []
        for candidate in _smaller(smallest):
            if _holds(candidate):
                candidates.append(candidate)
            if len(candidates) == TOGETHER:
                break
        if not candidates:
            break
        again = attempt(candidates)
        if not again:
            break
        smallest = min(again, key=lambda d: size(d.part.case))
        tell(f"shrinking, round {number + 1}: size {size(smallest.part.case)}")
    return smallest


def size(case: Case) -> int:
    """Count the parts that make a case hard to read."""
    steps = sum(_weight(spec.pipelines[0].operator) for spec in case.derived)
    return sum(map(len, case.traces.values())) + 10 * steps + 20 * len(case.datasets)


def _weight(operator: Operator) -> int:
    own = len(operator.aggregates) if isinstance(operator, Aggregate) else 1
    return own + sum(_weight(inner) for inner in _inner(operator))


def _holds(case: Case) -> bool:
    try:
        check(case)
    except REFUSALS:
        return False
    return True


def _smaller(difference: Difference) -> Iterator[Case]:
    """Propose smaller cases, those that drop most first."""
    case = difference.part.case
    needed = _needed(case, difference.dataset)
    if needed != {spec.name for spec in case.datasets}:
        yield _only(case, needed)
    for name, arrived in case.traces.items():
        if len(arrived) > 1:
            half = len(arrived) // 2
            yield _with_trace(case, name, arrived[:half])
            yield _with_trace(case, name, arrived[half:])
    for spec in reversed(case.derived):
        for operator in _without_a_step(spec.pipelines[0].operator):
            yield from _with_operator(case, spec.name, operator)
    for name, arrived in case.traces.items():
        for part in (4, 8, 16):
            length = max(1, len(arrived) // part)
            for start in range(0, len(arrived), length):
                if len(arrived) > 1:
                    yield _with_trace(case, name, (*arrived[:start], *arrived[start + length :]))


def _needed(case: Case, dataset: str) -> set[str]:
    specs = {spec.name: spec for spec in case.datasets}
    read = [name for pipeline in specs[dataset].pipelines for name in datasets_read(pipeline.operator)]
    return {dataset}.union(*(_needed(case, name) for name in read))


def _only(case: Case, names: set[str]) -> Case:
    return replace(
        case,
        datasets=tuple(spec for spec in case.datasets if spec.name in names),
        traces={name: arrived for name, arrived in case.traces.items() if name in names},
    )


def _with_trace(case: Case, name: str, arrived: Sequence[Arrival]) -> Case:
    return replace(case, traces={**case.traces, name: tuple(arrived)})


def _with_operator(case: Case, dataset: str, operator: Operator) -> Iterator[Case]:
    specs = {spec.name: spec for spec in case.datasets}
    try:
        changed = derived(operator, dataset, specs)
    except REFUSALS:
        return
    yield replace(case, datasets=tuple(changed if spec.name == dataset else spec for spec in case.datasets))


def _without_a_step(operator: Operator) -> Iterator[Operator]:
    """Propose trees with one step, or one column, less."""
    if isinstance(operator, Input):
        return
    yield from _inner(operator)
    match operator:
        case Union():
            yield from (replace(operator, left=left) for left in _without_a_step(operator.left))
            yield from (replace(operator, right=right) for right in _without_a_step(operator.right))
        case Join():
            yield from (replace(operator, left=left) for left in _without_a_step(operator.left))
        case _:
            yield from (replace(operator, of=of) for of in _without_a_step(operator.of))
    if isinstance(operator, Aggregate) and len(operator.aggregates) > 1:
        columns = operator.aggregates
        yield from (replace(operator, aggregates=(*columns[:i], *columns[i + 1 :])) for i in range(len(columns)))
    if isinstance(operator, Assign) and len(operator.columns) > 1:
        yield from (replace(operator, columns=(column,)) for column in operator.columns)


def _inner(operator: Operator) -> tuple[Operator, ...]:
    match operator:
        case Input():
            return ()
        case Union():
            return (operator.left, operator.right)
        case Join():
            return (operator.left,)
        case _:
            return (operator.of,)
