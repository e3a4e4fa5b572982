"""The stages of a plan on Spark: in each, rows are divided by the key of a lookup."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from caraway.compute.query.lookups import key_cast
from caraway.compute.query.model import KeyPart, LookupStep, PythonStep, Step
from caraway.compute.query.rounds import added, read


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that run after one shuffle.

    Attributes:
        keys: The columns by which rows are divided, in the order of the datasets' keys; empty for the first stage.
        datasets: The datasets whose records are divided in the same way.
        steps: The numbers of the steps, in order.
    """

    keys: tuple[KeyPart, ...]
    datasets: tuple[str, ...]
    steps: tuple[int, ...]


def stages_of(
    steps: Sequence[Step], may_divide: Collection[str], ordered: Callable[[LookupStep], tuple[KeyPart, ...]]
) -> tuple[Stage, ...]:
    """Return the stages of a plan.

    Args:
        steps: The steps of the plan.
        may_divide: The datasets of which a task should have only the records of its division.
        ordered: Returns the keys of a lookup in the order of the records' keys.
    """
    divisible = set(may_divide) - _read_otherwise(steps)
    made_by = {name: number for number, step in enumerate(steps) for name in added(step)}
    needs = [{made_by[name] for name in read(step) if name in made_by} for step in steps]
    done: set[int] = set()
    found: list[Stage] = []
    keys: tuple[KeyPart, ...] = ()
    while True:
        here: list[int] = []
        datasets: list[str] = []
        for number, step in enumerate(steps):
            if number in done or not needs[number] <= done:
                continue
            if isinstance(step, LookupStep) and step.dataset in divisible:
                if not _same(keys, ordered(step)):
                    continue
                datasets.append(step.dataset)
            here.append(number)
            done.add(number)
        found.append(Stage(keys, tuple(dict.fromkeys(datasets)), tuple(here)))
        left = [
            step
            for number, step in enumerate(steps)
            # The loop above has put all other steps that are ready into this stage, so only lookups can be left.
            if number not in done and needs[number] <= done and isinstance(step, LookupStep)
        ]
        if not left:
            return tuple(found)
        keys = ordered(left[0])


def _read_otherwise(steps: Sequence[Step]) -> set[str]:
    """Return the datasets that are read by other keys than those of a row: by functions, and by lists of keys."""
    found: set[str] = set()
    for step in steps:
        if isinstance(step, PythonStep):
            found.update(step.datasets)
        elif isinstance(step, LookupStep) and (step.each or any(key_cast(part) is not None for part in step.keys)):
            found.add(step.dataset)
    return found


def _same(one: Sequence[KeyPart], other: Sequence[KeyPart]) -> bool:
    """Return whether rows that are divided by one key are divided by another one, too."""
    return [(part.column, part.key_dtype) for part in one] == [(part.column, part.key_dtype) for part in other]
