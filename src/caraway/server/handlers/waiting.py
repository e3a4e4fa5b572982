"""The handler of `POST /wait`, which answers when the accepted rows are served."""

import asyncio
import time
from collections.abc import Mapping

from caraway.errors import ForbiddenError, InvalidInputError
from caraway.ingest.table import json_type
from caraway.server.deployment import Deployment
from caraway.server.handlers.reads import object_of
from caraway.server.http.budget import BusyError
from caraway.server.http.messages import HttpResponse, Request, json_response
from caraway.server.waiting.goals import Goal, LaggingPart
from caraway.server.waiting.wait import Wait, WaitOutcome
from caraway.state.permissions import Mode

# Bound on the seconds of one request, since proxies end requests that take longer; a client that waits longer asks
# again.
LONGEST_S = 10.0
# Bound on concurrent waits, because each reads the outputs of all jobs of a branch.
AT_ONCE = 8
# Interval between two checks whether a commit is served.
COMMIT_S = 0.1
# The greatest offset of a partition: offsets are signed 64-bit numbers.
LARGEST_OFFSET = 2**63 - 1
# Modes of which a caller needs one on a branch to learn whether it has caught up.
MODES = (Mode.READ_DEFINITION, Mode.READ_DATA, Mode.WRITE_DATA, Mode.WRITE_DEFINITION)


class Waits:
    """Answers requests to wait."""

    def __init__(self, deployment: Deployment) -> None:
        """Wait for what `deployment` serves."""
        self._deployment = deployment
        self._under_way = 0

    async def wait(self, request: Request) -> HttpResponse:
        """Answer `POST /wait` when all rows that were accepted before this request are served.

        Raises:
            BusyError: Too many requests wait already.
            ForbiddenError: The caller has no mode on the branch.
            InvalidInputError: The body isn't what it should be.
            UnavailableError: Kafka or Postgres doesn't answer.
        """
        if not any(request.caller.may(mode, request.branch) for mode in MODES):
            raise ForbiddenError(f"account {request.caller.account!r} may do nothing on branch {request.branch!r}")
        body = object_of(await request.json()) if request.body else {}
        deadline = time.monotonic() + _seconds(body)
        since = _since(body)
        if self._under_way >= AT_ONCE:
            raise BusyError(f"{AT_ONCE} requests wait already; try again")
        self._under_way += 1
        try:
            if body.get("commit"):
                lagging = await self._commit_served(request.branch, deadline)
                if lagging:
                    return _answer(WaitOutcome(lagging=tuple(lagging), done=0, parts=1, since=since))
            served = self._deployment.graphs.require_served_graph(request.branch)
            deployment = self._deployment
            wait = Wait(
                deployment.bootstrap_servers,
                deployment.writer,
                served.plan,
                positions=deployment.index.positions,
                jobs=deployment.state.jobs,
                since=since,
            )
            return _answer(await wait.until(deadline))
        finally:
            self._under_way -= 1

    async def _commit_served(self, branch: str, deadline: float) -> list[LaggingPart]:
        """Wait until the branch serves its newest commit, or until `deadline`."""
        while True:
            self._deployment.graphs.require_served_graph(branch)
            needed = self._deployment.graphs.needed
            found = next((b for b in needed.heads.branches if b.name == branch), None) if needed else None
            if found is None or found.serving == found.head:
                return []
            if time.monotonic() >= deadline:
                reason = f"the branch serves {found.serving} until all that the newer commit needs has caught up"
                return [LaggingPart(kind="commit", name=found.head or "", dataset="", records=None, reason=reason)]
            await asyncio.sleep(COMMIT_S)


def _answer(outcome: WaitOutcome) -> HttpResponse:
    return json_response(
        {
            "served": not outcome.lagging,
            "lagging": [each.to_json() for each in outcome.lagging],
            "done": outcome.done,
            "parts": outcome.parts,
            "since": {topic: {str(p): offset for p, offset in goal.items()} for topic, goal in outcome.since.items()},
        }
    )


def _seconds(body: Mapping[str, object]) -> float:
    value = body.get("seconds", LONGEST_S)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LONGEST_S:
        raise InvalidInputError(f"seconds is expected to be a number from 0 to {LONGEST_S:g}; ask again to wait longer")
    return float(value)


def _since(body: Mapping[str, object]) -> Mapping[str, Goal]:
    """Return the positions that an earlier answer gave.

    Raises:
        InvalidInputError: The positions are malformed.
    """
    since = body.get("since")
    if since is None:
        return {}
    fault = InvalidInputError("since is expected to be what an earlier answer gave: an object of topics with offsets")
    if not isinstance(since, dict):
        raise InvalidInputError(f"since is {json_type(since)}; {fault}")
    found: dict[str, Goal] = {}
    for topic, offsets in since.items():
        if not isinstance(offsets, dict):
            raise fault
        goal: dict[int, int] = {}
        for partition, offset in offsets.items():
            known = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= LARGEST_OFFSET
            if not (known and partition.isascii() and partition.isdigit() and len(partition) < len("2147483647")):
                raise fault
            goal[int(partition)] = offset
        found[topic] = goal
    return found
