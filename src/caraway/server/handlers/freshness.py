"""The handler that reports how old what queries read is."""

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from msgspec import Meta, Struct

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.server.freshness.freshness import Freshness
from caraway.server.freshness.heartbeats import explain
from caraway.server.handlers.context import ServerContext
from caraway.server.http.bodies import Nothing
from caraway.server.http.messages import HttpResponse, Request, json_response


class FreshnessParameters(Struct):
    """The dataset that is wanted."""

    dataset: Annotated[
        str | None, Meta(description="the name of a dataset, to show only that, with its ages of the last hours")
    ] = None


@dataclass(frozen=True, slots=True)
class PastAge:
    """The greatest age of a dataset within a minute, which began at a time in seconds since the epoch."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class FreshnessAnswer:
    """The freshness of the datasets of a branch that this server can measure, by name.

    `past` has the ages of the one that was asked for since this server started, for the last three hours at most.
    """

    branch: str
    datasets: list[Freshness]
    past: list[PastAge]


async def freshness(context: ServerContext, request: Request[Nothing, FreshnessParameters]) -> HttpResponse:
    """Return for each dataset how old what queries read is, and where the rows are that it lacks.

    Raises `UnknownEntityError` if the branch has no such dataset.
    """
    deployment, name = context.deployment, request.parameters().dataset
    served = deployment.graphs.require_served_graph(request.branch)
    found, past = deployment.freshness.of(served.plan), list[PastAge]()
    if name is not None:
        if all(spec.name != name for spec in served.graph.datasets):
            raise UnknownEntityError(f"the branch has no dataset {name[:100]!r}")
        found = [each for each in found if each.dataset == name]
        past = [PastAge(at, round(seconds, 3)) for at, seconds in deployment.freshness.past(served.plan, name)]
    if any(each.waits_for for each in found):
        # The states of jobs come from Postgres; without it the answer only lacks them.
        with suppress(UnavailableError):
            jobs = await asyncio.to_thread(deployment.state.jobs)
            found = [replace(each, waits_for=explain(each.waits_for, each.dataset, jobs)) for each in found]
    return json_response(asdict(FreshnessAnswer(request.branch, found, past)))
