"""The job registry, as an engine sees it."""

from collections.abc import Mapping

import sqlalchemy as sa

from caraway.graph.wire import decode_graph
from caraway.plan.model import JobPlan
from caraway.plan.planner import plan_graph
from caraway.state.model import MAIN, JobState
from caraway.state.reader import StateReader
from caraway.state.writer import StateWriter


class JobRegistry:
    """What must run, and where engines tell how it goes.

    Jobs aren't stored but planned anew from the branch's graph, by the same pure function that the commit used; a plan
    is kept until the branch moves.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.connect`)."""
        self._reader = StateReader(engine)
        self._writer = StateWriter(engine)
        self._planned_for: str | None = None
        self._jobs: tuple[JobPlan, ...] = ()

    def desired_jobs(self) -> tuple[JobPlan, ...]:
        """Give the jobs that must run now; cheap when nothing was committed since the last call.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        if self._reader.head_id(MAIN) != self._planned_for:
            head = self._reader.head(MAIN)
            self._jobs = plan_graph(decode_graph(head.graph)).jobs
            self._planned_for = head.commit_id
        return self._jobs

    def report(
        self,
        job_id: str,
        *,
        state: str,
        mode: str,
        attempts: int,
        error: str = "",
        progress: Mapping[str, object] | None = None,
    ) -> None:
        """Note how a job goes: its state, the mode that it runs in, how often it was started, its last error.

        Raises:
            ValueError: `state` is none of `JobState`.
            UnavailableError: Postgres doesn't answer.
        """
        self._writer.report(
            job_id, state=JobState(state), mode=mode, attempts=attempts, error=error, progress=progress or {}
        )
