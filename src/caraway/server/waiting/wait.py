"""One wait: goals, markers and what lags, step by step, so that the event loop goes on in between."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from caraway.index import IndexStatus
from caraway.plan.model import GraphPlan
from caraway.server.waiting.goals import Goal, Goals, LaggingPart, source_topics
from caraway.server.waiting.markers import Markers
from caraway.state import JobRecord
from caraway.topics import TopicWriter

# How long arrivals are waited for in one step. Positions of indexes are looked at as often.
STEP_S = 0.02
# How often Postgres is asked what jobs have reported; they report something new every few seconds.
JOBS_S = 0.5


class WaitWorld(Protocol):
    """What a wait asks; `caraway.server.deployment.Deployment` has it."""

    bootstrap_servers: str
    writer: TopicWriter

    def index_positions(self) -> list[IndexStatus]:
        """Return how far each index is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOutcome:
    """How a wait ended.

    Attributes:
        lagging: What isn't as far as it must be; empty if all is served.
        done: How many jobs and indexes are.
        parts: How many there are.
        since: Where the topics that are written from outside ended at the moment that is waited for.
    """

    lagging: tuple[LaggingPart, ...]
    done: int
    parts: int
    since: Mapping[str, Goal]


class Wait:
    """Waits until the rows that a branch accepted before a moment are served."""

    def __init__(
        self,
        world: WaitWorld,
        plan: GraphPlan,
        jobs: Callable[[], Sequence[JobRecord]],
        since: Mapping[str, Goal],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            world: The server.
            plan: What the branch serves.
            jobs: Returns what engines report of all jobs.
            since: Where topics ended at that moment; for partitions that are missing the moment is now.
            clock: Counts seconds.
        """
        self._world = world
        self._jobs = jobs
        self._clock = clock
        self._goals = Goals(plan)
        self._since = since
        self._markers = Markers(world.bootstrap_servers, world.writer, {job.job_id: job for job in plan.jobs})
        self._records: Sequence[JobRecord] = ()
        self._asked_at = float("-inf")

    async def until(self, deadline: float) -> "WaitOutcome":
        """Wait until all is served, or until the clock shows `deadline`; return how it is then.

        Raises:
            UnavailableError: Kafka or Postgres doesn't answer.
        """
        try:
            await asyncio.to_thread(self._begin)
            while True:
                outcome = await asyncio.to_thread(self._step)
                if not outcome.lagging or self._clock() >= deadline:
                    return outcome
        finally:
            self._markers.close()

    def _begin(self) -> None:
        sources = source_topics(self._goals.plan)
        ends = self._markers.ends().ends(sources)
        for topic in sources:
            since = self._since.get(topic, {})
            # Nothing behind the end of a topic can have been accepted.
            self._goals.known[topic] = {p: min(since.get(p, end), end) for p, end in ends.get(topic, {}).items()}
        self._markers.begin()

    def _step(self) -> "WaitOutcome":
        if self._clock() - self._asked_at >= JOBS_S:
            self._asked_at = self._clock()
            self._records = self._jobs()
        indexes = self._world.index_positions()
        self._goals.advance(self._markers.ends().ends, indexes, self._records, self._markers.arrived)
        lagging = self._goals.lagging(indexes, self._records)
        if lagging:
            self._markers.send(self._goals)
            self._markers.read(STEP_S)
        return WaitOutcome(
            lagging=tuple(lagging),
            done=self._goals.done(indexes),
            parts=self._goals.parts,
            since={topic: self._goals.known[topic] for topic in source_topics(self._goals.plan)},
        )
