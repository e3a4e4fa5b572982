"""The handler that reports how old what queries read is."""

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from caraway.apps.server.access.limits import permitted
from caraway.apps.server.freshness.freshness import Freshness
from caraway.apps.server.freshness.heartbeats import explain
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.history import STEP_S
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import UnavailableError
from caraway.state.permissions import Mode


@dataclass(frozen=True, slots=True)
class FreshnessAnswer:
    """The freshness of the datasets of a branch that this server can measure, by name."""

    branch: str
    datasets: list[Freshness]


def _readable(context: ServerContext, request: Request[Any, Any]) -> frozenset[str]:
    """Return the entities of the branch, datasets among them, whose definitions the caller may read."""
    served = context.deployment.graphs.require_served_graph(request.branch)
    tagged = context.limits.tags(served).entities
    return permitted(request.caller, Mode.READ_DEFINITION, request.branch, tagged)


async def freshness(context: ServerContext, request: Request) -> HttpResponse:
    """Return for each dataset how old what queries read is, and where the rows are that it lacks."""
    deployment = context.deployment
    served = deployment.graphs.require_served_graph(request.branch)
    seen = _readable(context, request)
    found = [each for each in deployment.status.freshness.of(served.plan) if each.dataset in seen]
    if any(each.waits_for for each in found):
        # The states of jobs come from Postgres. If Postgres doesn't answer, the answer is sent without them.
        with suppress(UnavailableError):
            # Another branch may have a job of a dataset of the same name.
            own = {job.job_id for job in served.plan.jobs}
            jobs = [job for job in await asyncio.to_thread(deployment.state.jobs) if job.job_id in own]
            found = [replace(each, waits_for=explain(each.waits_for, each.dataset, jobs)) for each in found]
    return json_response(asdict(FreshnessAnswer(request.branch, found)))


@dataclass(frozen=True, slots=True)
class DatasetAges:
    """The ages of a dataset: the beginnings of minutes, and the greatest age of each, in seconds."""

    dataset: str
    at: list[int]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class FreshnessHistory:
    """How old what queries read was in the minutes of the last day that this server has measured, by dataset."""

    branch: str
    step_seconds: int
    datasets: list[DatasetAges]


class HistoryParameters(Struct):
    """The dataset that is wanted."""

    dataset: Annotated[str | None, Meta(description="the name of a dataset, to show only that")] = None


async def freshness_history(context: ServerContext, request: Request[Nothing, HistoryParameters]) -> HttpResponse:
    """Return for each dataset how old what queries read was, minute by minute, up to a day back."""
    deployment, wanted = context.deployment, request.parameters().dataset
    served = deployment.graphs.require_served_graph(request.branch)
    ages, seen = deployment.status.freshness.history(served.plan, wanted), _readable(context, request)
    datasets = [
        DatasetAges(dataset, [at for at, _ in found], [seconds for _, seconds in found])
        for dataset, found in ages.items()
        if dataset in seen
    ]
    return json_response(asdict(FreshnessHistory(request.branch, STEP_S, datasets)))
