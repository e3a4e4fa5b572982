"""The protocols that the engine needs, so that its rules can be tested without Spark."""

from collections.abc import Mapping
from typing import Protocol

from caraway.engine.phases import Phase
from caraway.plan.model import JobPlan


class Query(Protocol):
    """A job that was started."""

    @property
    def phase(self) -> Phase:
        """The phase of the job in which this query runs."""

    def failure(self) -> str | None:
        """Return the reason why the query failed; None while it runs, or if it ended because all its work was done."""

    def is_over(self) -> bool:
        """Return whether the phase is over, so that the job must be started again in the next one."""

    def progress(self) -> Mapping[str, object]:
        """Return the figures known of its progress."""

    def stop(self) -> None:
        """Stop the query; rows since its last checkpoint are processed again at the next start."""


class Runtime(Protocol):
    """Starts jobs."""

    def start(self, plan: JobPlan, was: Phase | None = None) -> Query:
        """Start a job from its checkpoint; may take seconds.

        Args:
            plan: The job.
            was: The phase that is over, if the job changes its phase.

        Raises:
            Exception: The job couldn't be started, for any reason; trying again may help.
        """
