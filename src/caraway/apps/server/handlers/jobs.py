"""The handlers that act on streaming jobs: one is paused, or goes on (docs/operate/control.md)."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from caraway.apps.server.access.limits import require
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import ForbiddenError, UnknownEntityError
from caraway.state.blueprints import AssetKind
from caraway.state.permissions import Mode


class PauseBody(Struct, kw_only=True):
    """The job, and whether it is to be paused."""

    job_id: Annotated[str, Meta(max_length=1_000, description="the id of a job of the branch, as in the status")]
    paused: Annotated[bool, Meta(description="true: pause it; false: let it go on")] = True


class PauseAnswer(Struct):
    """The job, and whether it is paused now."""

    job_id: str
    paused: bool


async def pause_job(context: ServerContext, request: Request[PauseBody]) -> HttpResponse:
    """Pause a streaming job, or let it go on from where it stopped; nothing is lost meanwhile, and all is late.

    Raises:
        UnknownEntityError: The branch has no such job.
        ForbiddenError: The caller may not change the dataset, or not everything on another branch that shares the job.
    """
    asked, caller, deployment = await request.read(), request.caller, context.deployment
    served = deployment.graphs.require_served_graph(request.branch)
    job = next((job for job in served.plan.jobs if job.job_id == asked.job_id), None)
    if job is None:
        raise UnknownEntityError(f"branch {request.branch!r} has no job {asked.job_id[:100]!r}")
    tags = context.limits.tags(served).entities.get(job.dataset, frozenset())
    require(caller, Mode.WRITE_DEFINITION, request.branch, [(job.dataset, tags)])
    asset = f"{AssetKind.JOB}:{job.job_id}"
    sharing = (await asyncio.to_thread(deployment.state.references, [asset])).get(asset, frozenset())
    for other in sorted(sharing - {request.branch}):
        if not caller.may_all(Mode.WRITE_DEFINITION, other):
            raise ForbiddenError(
                f"branch {other!r} shares this job, and account {caller.account!r} may not change everything there"
            )
    await asyncio.to_thread(deployment.control.pauses.set, job.job_id, paused=asked.paused)
    return json_response({"job_id": job.job_id, "paused": asked.paused})
