"""Plans of queries whose steps are parts of a trace."""

from dataclasses import replace

from caraway.apps.server.tracing.spans import Attribute, Trace
from caraway.compute.query.batch import Batch, LaterRun, Run
from caraway.compute.query.executor import CompiledPlan
from caraway.compute.query.explain import described


def traced(plan: CompiledPlan, trace: Trace) -> CompiledPlan:
    """Return a plan for one request, each of whose steps is a part of its trace."""
    wrapped: dict[int, Run | LaterRun] = {}
    for step, run in zip(plan.plan.steps, plan.steps, strict=True):
        kind, title = described(step)
        attributes: dict[str, Attribute] = {"caraway.step": title}
        wrapped[id(run)] = (
            _Later(run, trace, kind, attributes) if isinstance(run, LaterRun) else _here(run, trace, kind, attributes)
        )
    steps = tuple(wrapped[id(run)] for run in plan.steps)
    stages = tuple(
        (
            tuple(wrapped[id(run)] for run in here),
            tuple(later for run in elsewhere if isinstance(later := wrapped[id(run)], _Later)),
        )
        for here, elsewhere in plan.stages
    )
    return replace(plan, steps=steps, stages=stages)


def _here(run: Run, trace: Trace, kind: str, attributes: dict[str, Attribute]) -> Run:
    def measured(batch: Batch) -> None:
        with trace.span(kind, attributes | {"caraway.compute.rows": batch.rows}):
            run(batch)

    return measured


class _Later:
    """A step that waits for another process or server."""

    def __init__(self, run: LaterRun, trace: Trace, kind: str, attributes: dict[str, Attribute]) -> None:
        self._run = run
        self._trace = trace
        self._kind = kind
        self._attributes = attributes

    def __call__(self, batch: Batch) -> None:
        with self._trace.span(self._kind, self._attributes | {"caraway.compute.rows": batch.rows}):
            self._run(batch)

    async def later(self, batch: Batch) -> None:
        with self._trace.span(self._kind, self._attributes | {"caraway.compute.rows": batch.rows}):
            await self._run.later(batch)
