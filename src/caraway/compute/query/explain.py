"""Explanations of queries, for people and programs: the steps of a plan, and the time that each takes."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from caraway.compute.query.batch import Traceable
from caraway.compute.query.executor import CompiledPlan
from caraway.compute.query.inputs import Table
from caraway.compute.query.model import (
    AliasStep,
    Computed,
    ExpressionStep,
    InputColumn,
    Instants,
    LookupStep,
    PythonStep,
    Step,
    TypedColumn,
)
from caraway.compute.query.rounds import added, read
from caraway.dtypes.types import type_name
from caraway.expr.printer import print_node

# One request may measure at most this many runs of a plan, so that it can't occupy the server for long.
MAX_RUNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """The time that a part took in several runs, in milliseconds."""

    least_ms: float
    median_ms: float
    most_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnExplained:
    """A column and its type, which is "" if the definitions don't state it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStepExplained:
    """A step: its kind, the columns that it reads and adds, the steps that it needs (by number, from 1), its time."""

    number: int
    kind: str
    title: str
    details: tuple[str, ...]
    reads: tuple[str, ...]
    adds: tuple[str, ...]
    after: tuple[int, ...]
    took: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryExplained:
    """The explanation of a query. `rows`, `runs` and the durations are present if it was run.

    `inputs_took` is the time for the cast of the inputs, `answer_took` that for the check of the outputs and their
    conversion to JSON.
    """

    inputs: tuple[ColumnExplained, ...]
    steps: tuple[QueryStepExplained, ...]
    outputs: tuple[ColumnExplained, ...]
    rows: int | None = None
    runs: int = 0
    inputs_took: Duration | None = None
    answer_took: Duration | None = None
    took: Duration | None = None


def explain(plan: CompiledPlan) -> QueryExplained:
    """Return the explanation of a plan, without running it."""
    return _explained(plan, [None] * len(plan.plan.steps))


def analyze(plan: CompiledPlan, data: Table, at: Instants | None, runs: int) -> QueryExplained:
    """Run a plan `runs` times, and return its explanation with the time of each part.

    Raises what the query raises: `InvalidInputError`, `ExtractorError` if user code failed, or `TooLargeError`.
    """
    parts: list[list[float]] = [[] for _ in range(len(plan.steps) + 3)]
    rows = 0
    for _ in range(max(1, runs)):
        clock = _Clock()
        batch = plan.batch(data, at)
        laps = [clock.lap()]
        for step in plan.steps if batch.rows else ():
            step(batch)
            laps.append(clock.lap())
        plan.check(batch)
        plan.check_size(batch)
        plan.answer(batch)
        laps += [0.0] * (len(parts) - 2 - len(laps))
        laps.append(clock.lap())
        for part, lap in zip(parts, [*laps, sum(laps)], strict=True):
            part.append(lap)
        rows = batch.rows
    before, *steps, answer, whole = map(_duration, parts)
    return _explained(plan, steps, rows=rows, runs=runs, inputs_took=before, answer_took=answer, took_all=whole)


class _Clock:
    """Measures one lap after the other, in milliseconds."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        took, self._at = (now - self._at) * 1e3, now
        return took


def _duration(laps: Sequence[float]) -> Duration:
    return Duration(
        least_ms=round(min(laps), 4), median_ms=round(statistics.median(laps), 4), most_ms=round(max(laps), 4)
    )


def _explained(
    plan: CompiledPlan,
    took: Sequence[Duration | None],
    *,
    rows: int | None = None,
    runs: int = 0,
    inputs_took: Duration | None = None,
    answer_took: Duration | None = None,
    took_all: Duration | None = None,
) -> QueryExplained:
    made_by: dict[str, int] = {}
    steps: list[QueryStepExplained] = []
    for number, (step, run, lap) in enumerate(zip(plan.plan.steps, plan.steps, took, strict=True), start=1):
        kind, title, details = _told(step)
        if isinstance(run, Traceable) and run.expressions:
            details += ("computed without its function:", *map(_computed, run.expressions))
        reads, adds = read(step), added(step)
        after = tuple(sorted({made_by[name] for name in reads if name in made_by}))
        made_by |= dict.fromkeys(adds, number)
        steps.append(
            QueryStepExplained(
                number=number, kind=kind, title=title, details=details, reads=reads, adds=adds, after=after, took=lap
            )
        )
    return QueryExplained(
        inputs=tuple(map(_column, plan.plan.inputs)),
        steps=tuple(steps),
        outputs=tuple(map(_column, plan.plan.outputs)),
        rows=rows,
        runs=runs,
        inputs_took=inputs_took,
        answer_took=answer_took,
        took=took_all,
    )


def _column(column: InputColumn | TypedColumn) -> ColumnExplained:
    return ColumnExplained(name=column.name, type="" if column.dtype is None else type_name(column.dtype))


def _computed(feature: Computed) -> str:
    return f"{feature.column} = {print_node(feature.expr)}"


def described(step: Step) -> tuple[str, str]:
    """Return the kind and the title of a step, such as "index read" and "Pots by pot"."""
    kind, title, _ = _told(step)
    return kind, title


def _told(step: Step) -> tuple[str, str, tuple[str, ...]]:
    """Return the kind, the title and the details of a step."""
    match step:
        case LookupStep():
            keys = ", ".join(
                part.key if part.column.partition(".")[2] == part.key else f"{part.key} = {part.column}"
                for part in step.keys
            )
            each = ", element by element" if step.each else ""
            details = tuple(
                f"{f.column} = {f.field}" + ("" if f.default is None else f", {f.default!r} if null")
                for f in step.features
            )
            return "index read", f"{step.dataset} by {keys}{each}", details
        case AliasStep():
            default = "" if step.default is None else f", {step.default!r} if null"
            return "alias", f"{step.output} = {step.input}{default}", ()
        case ExpressionStep():
            details = tuple(map(_computed, step.features))
            featureset = step.features[0].column.partition(".")[0]
            return "expressions", f"of {featureset}", details
        case PythonStep():
            details = (f"may look up {', '.join(step.datasets)}",) if step.datasets else ()
            return "extractor", f"{step.featureset}.{step.extractor}", details
        case _:
            assert_never(step)
