"""The job registry, from an engine's view."""

from collections.abc import Mapping

import sqlalchemy as sa

from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import JobPlan
from caraway.state.blueprints import AssetKind
from caraway.state.database import TIMEOUT_SECONDS, Store
from caraway.state.ledger import Ledger
from caraway.state.model import JobState
from caraway.state.plans import Plans
from caraway.state.reader import StateReader
from caraway.state.tables import jobs


class JobPauses(Store):
    """Pauses jobs, and lets them go on from where they stopped. Thread safe."""

    def set(self, job_id: str, *, paused: bool) -> None:
        """Pause a job or let it go on, which its engine does within a second.

        Raises `UnknownEntityError` if there is no such job.
        """
        statement = sa.update(jobs).where(jobs.c.job_id == job_id).values(paused=paused)
        if not self._in_transaction(lambda connection: connection.execute(statement), "pause a job").rowcount:
            raise UnknownEntityError(f"there is no job {job_id[:100]!r}")


class JobRegistry(Store):
    """The jobs that must run, and the place where engines report their progress.

    The plans of jobs aren't stored. They are computed from the graphs of the branches, by the same pure function that
    the commits used; a plan is kept in memory as long as a branch needs it.
    """

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        super().__init__(engine, timeout_seconds=timeout_seconds)
        self._plans = Plans(StateReader(engine))
        self._ledger = Ledger(engine)

    def desired_jobs(self) -> tuple[JobPlan, ...]:
        """Return the jobs that must run now, of all branches; cheap when nothing was committed since the last call."""
        paused = self._in_transaction(
            lambda connection: frozenset(connection.execute(sa.select(jobs.c.job_id).where(jobs.c.paused)).scalars()),
            "read the paused jobs",
        )
        found = self._plans.refresh().jobs
        return tuple(job for job in found if job.job_id not in paused) if paused else found

    def gone_jobs(self) -> frozenset[str]:
        """Return the jobs that were destroyed; engines may remove what they keep for them."""
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
        """Write what an engine reports of a job; a report of an unknown job is ignored.

        Raises `ValueError` if `state` is not a value of `JobState`.
        """
        statement = (
            sa.update(jobs)
            .where(jobs.c.job_id == job_id)
            .values(
                state=JobState(state),
                mode=mode,
                attempts=attempts,
                error=error,
                progress=dict(progress or {}),
                updated_at=sa.func.clock_timestamp(),
            )
        )
        self._in_transaction(lambda connection: connection.execute(statement), f"report on job {job_id}")
