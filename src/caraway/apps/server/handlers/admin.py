"""The handlers that report the state of the server."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from caraway.apps.server.access.limits import readable
from caraway.apps.server.deployment import Deployment
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.endpoints import API
from caraway.apps.server.http.messages import HttpResponse, Request, json_response, text_response
from caraway.apps.server.metrics import (
    set_backlogs,
    set_freshness,
    set_jobs,
    set_lags,
    set_losses,
    set_sinks,
    set_sources,
)
from caraway.errors import UnavailableError
from caraway.state.blueprints import AssetKind, content_of
from caraway.state.model import MAIN, JobRecord
from caraway.state.ownership.members import ENGINES
from caraway.state.permissions import Mode

VERSION = version("caraway")
HIDDEN = "a part that the server needs doesn't work; a request with a token gets the reasons, and so does /status"


async def root(context: ServerContext, request: Request) -> HttpResponse:
    """Return the name and version of the server."""
    return text_response(
        f"Caraway {VERSION}, a real-time feature platform.\n"
        f"The API is under {API}; GET {API}/status tells how this server is. People find the console under /console.\n"
    )


async def health(context: ServerContext, request: Request) -> HttpResponse:
    """Return status 200 if everything works, and 503 if not; callers with a token get reasons and warnings."""
    found = context.deployment.status.health
    problems = found.problems()
    if not context.deployment.accounts.gate.knows(request.headers):
        # Callers without a token get no reasons, which contain addresses and names of topics. Any `Host` is accepted
        # here, so even a page of another site could read the reasons.
        hidden = {"status": "unavailable", "err_msg": HIDDEN, "code": "unavailable"}
        return json_response(hidden, 503) if problems else json_response({"status": "ok"})
    if problems:
        reasons = "; ".join(f"{name} {reason}" for name, reason in problems.items())
        body = {"status": "unavailable", "problems": problems, "err_msg": reasons, "code": "unavailable"}
        return json_response(body, 503)
    if warning := await asyncio.to_thread(found.warning):
        return json_response({"status": "ok", "warning": warning})
    return json_response({"status": "ok"})


async def status(context: ServerContext, request: Request) -> HttpResponse:
    """Return the version, the commit, topics, the index, the sources and sinks of this server, engines and jobs.

    Datasets are those that the caller may read, and what belongs to datasets is of a branch that the caller may read.
    """
    deployment, caller = context.deployment, request.caller
    served = deployment.graphs.require_served_graph()
    graph = served.graph
    is_shown = await asyncio.to_thread(context.limits.shown_assets, caller, deployment.state.references)
    if not caller.may_all(Mode.READ_DEFINITION, MAIN):
        graph = readable(graph, context.limits.tags(served), caller, MAIN)
    jobs = await asyncio.to_thread(deployment.state.jobs)
    engines = await asyncio.to_thread(deployment.state.leases, ENGINES.members)
    index = await asyncio.to_thread(_index, deployment)
    index["indexes"] = [
        each for each in index["indexes"] if is_shown(each["dataset"], f"{AssetKind.INDEX}:{each['asset']}")
    ]
    return json_response(
        {
            "caraway": VERSION,
            "commit": served.version or None,
            "problems": deployment.status.health.problems(),
            "warning": await asyncio.to_thread(deployment.status.health.warning),
            "datasets": [spec.name for spec in graph.datasets],
            "featuresets": [spec.name for spec in graph.featuresets],
            "topics": [
                {"dataset": topic.dataset, "name": topic.name, "kind": topic.kind}
                for topic in served.plan.topics
                if is_shown(topic.dataset, content_of(topic))
            ],
            "index": index,
            "sources": _sources(deployment, is_shown),
            "sinks": _sinks(deployment, is_shown),
            "engines": [{"node": lease.owner, "alive": lease.alive, "until": lease.expires_at} for lease in engines],
            "jobs": _jobs(jobs, is_shown),
        }
    )


def _sources(deployment: Deployment, is_shown: Callable[[str, str], bool]) -> list[dict[str, Any]]:
    """Return the state of the sources that a caller may see, of this server's."""
    return [
        {
            "source": status.source,
            "dataset": status.dataset,
            "state": status.state,
            "owned": status.owned,
            "lag": status.lag,
            "position": status.position,
            "progress": None
            if status.progress is None
            else {
                **asdict(status.progress),
                "per_second": status.per_second,
                "remaining_seconds": status.remaining_s,
            },
            "rows": status.rows,
            "read_at": status.read_at,
            "polled_at": status.polled_at,
            "dead_letters": status.dead_letters,
            "error": status.error,
        }
        for status in deployment.connectors.sources.statuses()
        if is_shown(status.dataset, f"{AssetKind.TOPIC}:{status.topic}")
    ]


def _sinks(deployment: Deployment, is_shown: Callable[[str, str], bool]) -> list[dict[str, Any]]:
    """Return the state of the sinks that a caller may see, of this server's."""
    return [
        {
            "sink": status.sink,
            "target": status.target,
            "dataset": status.dataset,
            "state": status.state,
            "owned": status.owned,
            "guarantee": status.guarantee,
            "backlog": status.backlog,
            "offsets": {str(partition): offset for partition, offset in status.offsets.items()},
            "written_at": status.written_at,
            "dead_letters": status.dead_letters,
            "error": status.error,
        }
        for status in deployment.connectors.sinks.statuses()
        if is_shown(status.dataset, f"{AssetKind.SINK}:{status.sink_id}")
    ]


def _jobs(jobs: Sequence[JobRecord], is_shown: Callable[[str, str], bool]) -> list[dict[str, Any]]:
    """Return the state of the jobs that a caller may see."""
    return [
        {
            "id": job.job_id,
            "dataset": job.dataset,
            "pipeline": job.pipeline,
            "mode": job.mode,
            "mode_reason": job.mode_reason,
            "desired": job.desired,
            "state": job.shown_state,
            "error": job.error,
            "attempts": job.attempts,
            "updated_at": job.updated_at,
            "progress": job.progress,
        }
        for job in jobs
        if is_shown(job.dataset, f"{AssetKind.JOB}:{job.job_id}")
    ]


def _index(deployment: Deployment) -> dict[str, Any]:
    """Return the state of the index, and the lag and age of each index in seconds (None while it isn't known)."""
    ages = deployment.status.freshness.ages()
    seconds = {lag.asset: lag.seconds for lag in deployment.status.lags.look()}
    status: dict[str, Any] = deployment.index.status()
    indexes = [
        # The lag in records is read a moment after the lag in seconds, and an index may have caught up in between. So 0
        # records mean 0 seconds.
        {
            **index,
            "lag_seconds": 0.0 if index["lag"] == 0 else seconds.get(index["asset"]),
            "freshness_seconds": ages.get(index["asset"]),
        }
        for index in status["indexes"]
    ]
    return {**status, "indexes": indexes}


async def metrics(context: ServerContext, request: Request) -> HttpResponse:
    """Return the metrics for Prometheus."""
    deployment = context.deployment
    served = deployment.graphs.main()
    if served is not None:
        # The states of jobs come from Postgres. If it doesn't answer, their metrics keep the last values, and the page
        # is still sent for the sake of all others.
        with suppress(UnavailableError):
            set_jobs(await asyncio.to_thread(deployment.state.jobs))
        set_backlogs(served.plan, await asyncio.to_thread(deployment.index.positions))
        set_lags(await asyncio.to_thread(deployment.status.lags.look))
        set_freshness(
            {
                branch: [
                    (each.dataset, each.seconds)
                    for each in deployment.status.freshness.of(graph.plan)
                    if each.seconds is not None
                ]
                for branch, graph in deployment.graphs.all().items()
            }
        )
        set_sources(deployment.connectors.sources.statuses())
        set_sinks(deployment.connectors.sinks.statuses())
    set_losses(await asyncio.to_thread(deployment.status.losses))
    return text_response(deployment.status.figures().decode(), CONTENT_TYPE_LATEST)
