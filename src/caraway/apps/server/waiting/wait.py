"""One wait for rows to be served, done in steps, so that the event loop goes on in between."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caraway.apps.server.waiting.goals import Goal, Goals, LaggingPart, source_topics
from caraway.apps.server.waiting.markers import Markers
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.topics.producer import TopicWriter
from caraway.graph.plan.model import GraphPlan
from caraway.state.model import JobRecord

# The longest time, in seconds, for which a step waits for arrivals of markers. The next step looks at the positions of
# the indexes again.
STEP_S = 0.02
# Seconds between two reads of the progress of the jobs from Postgres, where engines report it every few seconds.
JOBS_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOutcome:
    """The outcome of a wait.

    Attributes:
        lagging: The parts that haven't reached their goals; empty if all is served.
        done: The number of jobs and indexes that have.
        parts: The number of jobs and indexes.
        since: The ends of the source topics at the moment of the wait.
    """

    lagging: tuple[LaggingPart, ...]
    done: int
    parts: int
    since: Mapping[str, Goal]


class Wait:
    """Waits until the rows that a branch accepted before a moment are served."""

    def __init__(
        self,
        bootstrap_servers: str,
        writer: TopicWriter,
        plan: GraphPlan,
        *,
        positions: Callable[[], Sequence[IndexStatus]],
        jobs: Callable[[], Sequence[JobRecord]],
        since: Mapping[str, Goal],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            bootstrap_servers: The broker, "host:port".
            writer: The writer of markers.
            plan: The plan that the branch serves.
            positions: Returns how far each index is.
            jobs: Returns the engines' reports on all jobs.
            since: The ends of the source topics at that moment; a partition that is missing has its current end.
            clock: Counts seconds.
        """
        self._positions = positions
        self._jobs = jobs
        self._clock = clock
        self._goals = Goals(plan)
        self._since = since
        self._markers = Markers(bootstrap_servers, writer, {job.job_id: job for job in plan.jobs})
        self._records: Sequence[JobRecord] = ()
        self._asked_at = float("-inf")

    async def until(self, deadline: float) -> WaitOutcome:
        """Wait until all is served, or until the clock shows `deadline`; return the outcome.

        Raises `UnavailableError` if Kafka or Postgres doesn't answer.
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
        ends = self._markers.ends.ends(sources)
        for topic in sources:
            since = self._since.get(topic, {})
            # `since` comes from the request, and may by mistake be an offset after the end of the topic. No row can
            # have been accepted there, and such a goal would never be reached.
            self._goals.known[topic] = {p: min(since.get(p, end), end) for p, end in ends.get(topic, {}).items()}
        self._markers.begin()

    def _step(self) -> WaitOutcome:
        if self._clock() - self._asked_at >= JOBS_S:
            self._asked_at = self._clock()
            self._records = self._jobs()
        indexes = self._positions()
        self._goals.advance(self._markers.ends.ends, indexes, self._records, self._markers.arrived)
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
