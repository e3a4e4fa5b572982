"""The job registry, from an engine's view."""

from collections.abc import Mapping

import sqlalchemy as sa

from caraway.plan.model import JobPlan
from caraway.state.blueprints import AssetKind
from caraway.state.ledger import Ledger
from caraway.state.model import JobState
from caraway.state.plans import Plans
from caraway.state.reader import StateReader
from caraway.state.writer import StateWriter


class JobRegistry:
    """The jobs that must run, and the place where engines report their progress.

    Jobs aren't stored but planned anew from the graphs of the branches, by the same pure function that the commits
    used; a plan is kept in memory as long as a branch needs it.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        self._plans = Plans(StateReader(engine))
        self._writer = StateWriter(engine)
        self._ledger = Ledger(engine)

    def desired_jobs(self) -> tuple[JobPlan, ...]:
        """Return the jobs that must run now, of all branches; cheap when nothing was committed since the last call."""
        return self._plans.refresh().jobs

    def gone_jobs(self) -> frozenset[str]:
        """Return the jobs that were destroyed; nobody needs any more what an engine keeps for them."""
        return self._ledger.gone(AssetKind.JOB)

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
        """Write the state of a job, the mode that it runs in, how often it was started, and its last error.

        Raises `ValueError` if `state` is not a value of `JobState`.
        """
        self._writer.report(
            job_id, state=JobState(state), mode=mode, attempts=attempts, error=error, progress=progress or {}
        )
