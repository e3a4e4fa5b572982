"""What the engine needs of the world, so that its rules can be tested without Spark, Postgres and Kafka."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from caraway.engine.phases import Phase
from caraway.plan.model import JobPlan


class JobReports(Protocol):
    """Says what must run and is told how it goes; `caraway.state.JobRegistry` is one."""

    def desired_jobs(self) -> Sequence[JobPlan]:
        """Return the jobs that must run now.

        Raises:
            UnavailableError: The registry doesn't answer.
        """

    def gone_jobs(self) -> frozenset[str]:
        """Return the jobs that will never run again, nor any of their name.

        Raises:
            UnavailableError: The registry doesn't answer.
        """

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
        """Note how a job goes.

        Raises:
            UnavailableError: The registry doesn't answer.
        """


class Query(Protocol):
    """A job that was started."""

    @property
    def phase(self) -> Phase:
        """What it is about."""

    def failure(self) -> str | None:
        """Return why it ended, None while it runs, or if it has done all that there was to do."""

    def is_over(self) -> bool:
        """Return whether this phase is over, so that the job must be started again in the next one."""

    def progress(self) -> Mapping[str, object]:
        """Return what is known of its progress."""

    def stop(self) -> None:
        """End it; what it has not checkpointed is done again at the next start."""


class Runtime(Protocol):
    """Starts jobs."""

    def start(self, plan: JobPlan, was: Phase | None = None) -> Query:
        """Start a job where its checkpoint left it; may take seconds.

        Args:
            plan: The job.
            was: The phase that is over, if it goes from one to the next.

        Raises:
            Exception: It could not be started, for whatever reason; trying again may help.
        """
