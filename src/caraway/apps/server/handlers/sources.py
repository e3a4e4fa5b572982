"""The handler that tries sources: it connects, reads a sample, tells how each row fits, and changes nothing."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from caraway.apps.server.access.limits import approval, require
from caraway.apps.server.control.touching import touched
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, in_decoder, json_response
from caraway.dataplane.sources.trials import MAX_ROWS, Trial, TriedRow
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.plan.model import IngestPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.validation.graphs import validate
from caraway.graph.wire.graphs import decode_commit
from caraway.state.permissions import Mode

# The most sources that one request tries, since each opens a connection of its own.
MAX_SOURCES = 20


class TrialParameters(Struct):
    """The sources that are tried."""

    name: Annotated[str, Meta(description="the name of a dataset, of a system, or of one source as status shows it")]
    rows: Annotated[int, Meta(ge=0, le=MAX_ROWS, description=f"the rows of a sample, from 0 to {MAX_ROWS}")] = 10


class TrialRow(Struct):
    """A row of a sample; `accepted`, or else with `reasons`, or left out by where, since, until or sample."""

    origin: dict[str, Any]
    payload: Any
    accepted: bool
    changes: list[dict[str, Any]]
    reasons: list[dict[str, str]]


class TrialOfSource(Struct):
    """The trial of a source; `error` is empty if it can be read."""

    dataset: str
    source: str
    error: str
    seconds: float
    rows: list[TrialRow]


class TrialsAnswer(Struct):
    """The trials of all sources of the name."""

    sources: list[TrialOfSource]


async def try_sources(context: ServerContext, request: Request[Nothing, TrialParameters]) -> HttpResponse:
    """Connect to sources and read a sample: those of the branch, or of definitions sent as protobuf.

    The server connects to what the definitions name, so the caller must be allowed to commit them. The sample is data
    of the datasets, so the caller must be allowed to read it.
    """
    served = context.deployment.graphs.require_served_graph(request.branch)
    asked = request.parameters()
    graph = (await in_decoder(decode_commit, request.body)).graph if request.body else served.graph
    plans = await asyncio.to_thread(_plans, graph, asked.name)
    chosen = tuple({plan.dataset.name: plan.dataset for plan in plans}.values())
    approval(request.caller, request.branch)(touched(Graph(), Graph(datasets=chosen)))
    if not request.caller.may_all(Mode.READ_DATA, request.branch):
        require(request.caller, Mode.READ_DATA, request.branch, touched(Graph(), Graph(datasets=chosen)))
    trials = await asyncio.to_thread(context.deployment.connectors.trials.run, plans, asked.rows)
    return json_response(msgspec.to_builtins(TrialsAnswer(sources=[_shown(trial) for trial in trials])))


def _plans(graph: Graph, name: str) -> list[IngestPlan]:
    """Return the sources of a name that servers read.

    Each dataset is planned by itself, so that a source can be tried before the definitions around it are right.
    """
    found = [
        plan
        for spec in graph.datasets
        if spec.sources
        for plan in _planned(spec, name)
        if name in {plan.dataset.name, plan.source.connector.system_name, plan.source.connector.identifier}
    ]
    read = [plan for plan in found if plan.source.connector.reader]
    if not found:
        names = ", ".join(sorted(_names(graph)))
        raise UnknownEntityError(f"there is no dataset with a source and no system {name[:100]!r}; there are: {names}")
    if not read:
        raise InvalidInputError(
            f"{name[:100]!r} is fed by clients, which send rows to a webhook: there is nothing to try"
        )
    if len(read) > MAX_SOURCES:
        raise InvalidInputError(
            f"{name[:100]!r} has {len(read)} sources, at most {MAX_SOURCES} are tried at once: name a dataset"
        )
    return read


def _planned(spec: DatasetSpec, name: str) -> tuple[IngestPlan, ...]:
    named = tuple(
        source
        for source in spec.sources
        if name in {spec.name, source.connector.system_name, source.connector.identifier}
    )
    if not named:
        return ()
    alone = Graph(datasets=(replace(spec, sources=named, pipelines=(), sinks=()),))
    validate(alone)
    return plan_graph(alone).ingests


def _names(graph: Graph) -> Iterator[str]:
    for spec in graph.datasets:
        for source in spec.sources:
            yield from (spec.name, source.connector.system_name)


def _shown(trial: Trial) -> TrialOfSource:
    return TrialOfSource(
        dataset=trial.dataset,
        source=trial.source,
        error=trial.error,
        seconds=trial.seconds,
        rows=[_row(row) for row in trial.rows],
    )


def _row(row: TriedRow) -> TrialRow:
    return TrialRow(
        origin=dict(row.origin),
        payload=row.payload,
        accepted=bool(row.changes) and not row.reasons,
        changes=[dict(change) for change in row.changes],
        reasons=[{"field": field, "message": message} for field, message in row.reasons],
    )
