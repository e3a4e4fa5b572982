"""The handler of `POST /wait`, which answers when the accepted rows are served."""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.apps.server.waiting.goals import LaggingPart
from caraway.apps.server.waiting.wait import Wait, WaitOutcome

# The most seconds that one request waits. Proxies end requests that take long, so a client that wants to wait longer
# sends another request, with the `since` of the answer.
LONGEST_S = 10.0
# Seconds between two checks whether the branch serves its newest commit.
COMMIT_S = 0.1
# The greatest offset of a partition: offsets are signed 64-bit numbers.
LARGEST_OFFSET = 2**63 - 1
Offset = Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)]
# Offsets by topic and partition. Kafka numbers partitions with signed 32-bit numbers, and all numbers of up to nine
# digits are such.
Positions = dict[str, dict[Annotated[str, Meta(pattern=r"^[0-9]{1,9}$")], Offset]]


class WaitBody(Struct):
    """How long to wait, and for what."""

    seconds: Annotated[
        float, Meta(ge=0, le=LONGEST_S, description=f"a number from 0 to {LONGEST_S:g} (ask again to wait longer)")
    ] = LONGEST_S
    commit: Annotated[bool | None, Meta(description="true, to wait for the newest commit too, or false")] = None
    since: Annotated[
        Positions | None,
        Meta(description="what an earlier answer gave (an object of topics with offsets), to go on waiting for it"),
    ] = None


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    """The parts that lag; `done` of all `parts` don't. A later request sends `since` to wait for the same rows."""

    served: bool
    lagging: tuple[LaggingPart, ...]
    done: int
    parts: int
    since: dict[str, dict[str, int]]


async def wait(context: ServerContext, request: Request[WaitBody]) -> HttpResponse:
    """Answer when all rows that were accepted before are served, or when the time is over."""
    body = await request.read()
    deadline = time.monotonic() + body.seconds
    since = {
        topic: {int(partition): offset for partition, offset in offsets.items()}
        for topic, offsets in (body.since or {}).items()
    }
    leave = context.waits.enter()
    try:
        if body.commit:
            lagging = await _commit_served(context, request.branch, deadline)
            if lagging:
                return _answer(WaitOutcome(lagging=tuple(lagging), done=0, parts=1, since=since))
        served = context.deployment.graphs.require_served_graph(request.branch)
        deployment = context.deployment
        wait = Wait(
            deployment.topics.servers,
            deployment.topics.writer,
            served.plan,
            positions=deployment.index.positions,
            jobs=deployment.state.jobs,
            since=since,
        )
        return _answer(await wait.until(deadline))
    finally:
        leave()


async def _commit_served(context: ServerContext, branch: str, deadline: float) -> list[LaggingPart]:
    """Wait until the branch serves its newest commit, or until `deadline`."""
    while True:
        context.deployment.graphs.require_served_graph(branch)
        needed = context.deployment.graphs.needed
        found = next((b for b in needed.heads.branches if b.name == branch), None) if needed else None
        if found is None or found.serving == found.head:
            return []
        if time.monotonic() >= deadline:
            reason = f"the branch serves {found.serving} until all that the newer commit needs has caught up"
            return [LaggingPart(kind="commit", name=found.head or "", dataset="", records=None, reason=reason)]
        await asyncio.sleep(COMMIT_S)


def _answer(outcome: WaitOutcome) -> HttpResponse:
    since = {topic: {str(p): offset for p, offset in goal.items()} for topic, goal in outcome.since.items()}
    return json_response(WaitAnswer(not outcome.lagging, outcome.lagging, outcome.done, outcome.parts, since))
