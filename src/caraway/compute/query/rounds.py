"""The order of a plan's steps if some of them run in other processes, so that those run at the same time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

from caraway.compute.query.model import AliasStep, ExpressionStep, LookupStep, PythonStep, Step


@dataclass(frozen=True, slots=True)
class Round:
    """A round of steps, by number: first those that run `here`, in order, then those `elsewhere`, at the same time."""

    here: tuple[int, ...]
    elsewhere: tuple[int, ...]


def rounds(steps: Sequence[Step], elsewhere: Collection[int]) -> tuple[Round, ...]:
    """Return the steps of a plan in rounds; `elsewhere` has the numbers (from 0) of those that run elsewhere."""
    made_by = {name: number for number, step in enumerate(steps) for name in added(step)}
    needs = [{made_by[name] for name in read(step) if name in made_by} for step in steps]
    done: set[int] = set()
    found: list[Round] = []
    while len(done) < len(steps):
        here: list[int] = []
        for number in range(len(steps)):
            # Steps are in topological order, so one pass finds all steps that can run.
            if number not in done and number not in elsewhere and needs[number] <= done:
                here.append(number)
                done.add(number)
        ready = [n for n in range(len(steps)) if n not in done and n in elsewhere and needs[n] <= done]
        done.update(ready)
        found.append(Round(tuple(here), tuple(ready)))
    return tuple(found)


def read(step: Step) -> tuple[str, ...]:
    """Return the names of the columns that a step reads."""
    match step:
        case LookupStep():
            return tuple(part.column for part in step.keys)
        case AliasStep():
            return (step.input,)
        case ExpressionStep():
            return tuple(name for _, name, _ in step.inputs)
        case PythonStep():
            return tuple(column.name for column in step.inputs)
        case _:
            assert_never(step)


def added(step: Step) -> tuple[str, ...]:
    """Return the names of the columns that a step adds."""
    match step:
        case LookupStep():
            return tuple(feature.column for feature in step.features)
        case AliasStep():
            return (step.output,)
        case ExpressionStep():
            return tuple(feature.column for feature in step.features)
        case PythonStep():
            return step.kept
        case _:
            assert_never(step)
