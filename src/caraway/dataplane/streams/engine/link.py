"""The engine's link to the registry: a thread, so that jobs and loop continue while Postgres is unreachable."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from caraway.dataplane.streams.engine.job_ownership import JobOwnership, Work
from caraway.dataplane.streams.engine.jobs import JobStatus
from caraway.graph.plan.model import JobPlan
from caraway.process.recurring import Recurring
from caraway.state.registry import JobRegistry

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
# Seconds between two removals of the checkpoints of jobs that no branch needs any more. Such checkpoints only occupy
# disk space, so their removal isn't urgent.
SWEEP_SECONDS = 60.0


class RegistryLink(Recurring):
    """Polls the registry in a thread of its own and passes reports to it.

    Only changes are reported, and only the newest report on each job, since after an outage the registry needs the
    present state alone. When the thread is stopped, it passes on the last reports and releases the jobs.
    """

    def __init__(self, registry: JobRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        """Use `registry`, which no other thread may use; `clock` returns a time in seconds."""
        super().__init__("registry", self._exchange, POLL_SECONDS, finish=self._end)
        self._registry = registry
        self._lock = threading.Lock()
        self._desired: Sequence[JobPlan] | None = None
        self._ownership: JobOwnership | None = None
        self._sweep: Callable[[Collection[str]], Collection[str]] | None = None
        self._clock = clock
        self._swept_at = -math.inf
        self._work = Work()
        self._reported: dict[str, JobStatus] = {}
        self._unreported: dict[str, JobStatus] = {}

    def begin(self, sweep: Callable[[Collection[str]], Collection[str]], ownership: JobOwnership | None) -> None:
        """Begin to share the jobs with other engines, if there is an `ownership`, and to remove leftovers.

        `sweep` removes the folders of jobs that are gone, and returns the jobs that had any.
        """
        with self._lock:
            self._sweep, self._ownership = sweep, ownership

    @property
    def desired(self) -> tuple[int, Sequence[JobPlan] | None]:
        """The version of the owned jobs, and the jobs that must run here.

        The jobs are None until the registry has answered once.
        """
        with self._lock:
            if self._desired is None or self._ownership is None:
                return 0, self._desired
            owned = self._ownership.owned
            return owned.version, [job for job in self._desired if job.job_id in owned.folders]

    def report(self, statuses: Mapping[str, JobStatus], work: Work) -> None:
        """Queue a report on the jobs, and note the jobs that are under way."""
        with self._lock:
            changed = {job_id: status for job_id, status in statuses.items() if self._reported.get(job_id) != status}
            self._unreported.update(changed)
            self._work = work

    def _end(self) -> None:
        try:
            self._exchange()
        finally:
            if self._ownership is not None:
                # If the registry doesn't answer, this raises an error, and the jobs become free when this engine's
                # lease ends.
                self._ownership.leave()

    def _exchange(self) -> None:
        # `Recurring` logs any error of the registry, such as missing tables or a graph of a newer version, and calls
        # this method again. Running jobs continue meanwhile.
        desired = self._registry.desired_jobs()
        with self._lock:
            self._desired = desired
            reports, work, ownership = dict(self._unreported), self._work, self._ownership
        for job_id, status in reports.items():
            # Other engines report on the jobs that they run, so this engine drops its reports on jobs that it has lost.
            if ownership is None or ownership.may_report(job_id):
                self._report(job_id, status)
            else:
                self._forget(job_id)
        if ownership is not None and not self.stopping.is_set():
            # Reports are sent before jobs are released, since after the release of a job only its next owner may report
            # on it.
            ownership.exchange([job.job_id for job in desired], work)
        self._clear(work)

    def _clear(self, work: Work) -> None:
        """Remove leftovers of gone jobs, once a minute."""
        if self._sweep is None or self._clock() - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = self._clock()
        gone = self._registry.gone_jobs() - work.jobs
        if removed := self._sweep(gone):
            log.info("removed the checkpoints of jobs that are gone: %s", ", ".join(sorted(removed)))
        if self._ownership is not None and gone:
            self._ownership.forget(gone)

    def _forget(self, job_id: str) -> None:
        with self._lock:
            self._reported.pop(job_id, None)
            self._unreported.pop(job_id, None)

    def _report(self, job_id: str, status: JobStatus) -> None:
        self._registry.report(
            job_id,
            state=status.state,
            mode=status.mode,
            attempts=status.attempts,
            error=status.error,
            progress={**status.progress, **({"engine": self._ownership.name} if self._ownership else {})},
        )
        with self._lock:
            self._reported[job_id] = status
            if self._unreported.get(job_id) == status:
                del self._unreported[job_id]
