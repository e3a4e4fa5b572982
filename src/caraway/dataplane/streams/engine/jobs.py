"""The jobs of an engine: starts the wanted ones, stops the others, and starts again those that have failed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from caraway.dataplane.streams.engine.phases import Phase
from caraway.graph.plan.model import JobPlan
from caraway.state.model import JobState

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
# The longest wait, in seconds, before a failed job is started again. A killed broker is back in some seconds, and a
# longer wait would prolong the outage of its jobs.
LAST_BACKOFF_SECONDS = 30.0
# After this many seconds a running job counts as recovered: its error is cleared, and after its next failure the
# backoff starts again at `FIRST_BACKOFF_SECONDS`.
RECOVERED_SECONDS = 120.0


# `Query` and `Runtime` are protocols, so that the rules of jobs can be tested without Spark.
class Query(Protocol):
    """The running query of a job."""

    @property
    def phase(self) -> Phase:
        """The phase of the job in which this query runs."""

    def failure(self) -> str | None:
        """Return the reason why the query failed; None while it runs, or if it ended because all its work was done."""

    def is_over(self) -> bool:
        """Return whether the phase is over, so that the job must be started again in the next one."""

    def progress(self) -> Mapping[str, object]:
        """Return the figures that are known of the query's progress."""

    def stop(self) -> None:
        """Stop the query; rows since its last checkpoint are processed again at the next start."""


class Runtime(Protocol):
    """Starts jobs."""

    def start(self, plan: JobPlan, was: Phase | None = None) -> Query:
        """Start a job from its checkpoint, which may take seconds. If the job changes its phase, `was` is the last one.

        Any exception means that the job couldn't be started; it is tried again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a job, as it is reported.

    Attributes:
        state: The job's state.
        mode: The mode in which it runs.
        attempts: The number of times that it was started.
        error: The last error; empty once the job has recovered.
        progress: The figures that its query reports.
    """

    state: JobState
    mode: str
    attempts: int = 0
    error: str = ""
    progress: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    plan: JobPlan
    status: JobStatus
    starting: Future[Query] | None = None
    query: Query | None = None
    started_at: float = 0.0
    backoff_seconds: float = 0.0
    next_start_at: float = 0.0


class Jobs:
    """The jobs of one engine; one thread must call `reconcile` often. Not thread safe."""

    def __init__(self, runtime: Runtime, executor: Executor, clock: Callable[[], float]) -> None:
        """Start jobs through `runtime` in threads of `executor`; `clock` counts seconds and never goes back."""
        self._runtime = runtime
        self._executor = executor
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._stopping: dict[str, tuple[JobStatus, Future[None]]] = {}

    def reconcile(self, desired: Sequence[JobPlan]) -> Mapping[str, JobStatus]:
        """Do one step towards running exactly `desired`; return the status of all jobs, also of those just stopped."""
        wanted = {plan.job_id: plan for plan in desired}
        for job_id in self._jobs.keys() - wanted.keys():
            self._release(job_id)
        for job_id, plan in wanted.items():
            # A job's id is derived from its content, so a job may be wanted again while its last query is still
            # stopping. The job is started only after that query has ended.
            if job_id not in self._jobs and job_id not in self._stopping:
                self._jobs[job_id] = _Job(plan, JobStatus(state=JobState.STARTING, mode=plan.mode))
        for job in self._jobs.values():
            self._step(job)
        return {**self._collect_stopped(), **{job_id: job.status for job_id, job in self._jobs.items()}}

    @property
    def under_way(self) -> frozenset[str]:
        """The jobs that are being started, run, or are being stopped."""
        return frozenset((*self._jobs, *self._stopping))

    def stop_all(self) -> list[Future[None]]:
        """Begin to stop all jobs, and return futures that are done when they have stopped."""
        for job_id in list(self._jobs):
            self._release(job_id)
        return [future for _, future in self._stopping.values()]

    def _step(self, job: _Job) -> None:
        now = self._clock()
        if job.starting is not None and job.starting.done():
            self._take_started(job, job.starting, now)
        elif job.query is not None:
            self._look_at(job, job.query, now)
        elif job.starting is None and now >= job.next_start_at:
            job.status = replace(job.status, attempts=job.status.attempts + 1)
            job.starting = self._executor.submit(self._runtime.start, job.plan)

    def _take_started(self, job: _Job, starting: Future[Query], now: float) -> None:
        job.starting = None
        error = starting.exception()
        if error is not None:
            self._fail(job, brief(error), now)
            return
        job.query = starting.result()
        job.started_at = now
        job.status = replace(job.status, state=JobState.RUNNING)
        log.info("job %s runs, %s", job.plan.job_id, job.query.phase)

    def _look_at(self, job: _Job, query: Query, now: float) -> None:
        failure = query.failure()
        if failure is not None:
            job.query = None
            self._fail(job, failure, now)
            return
        if query.is_over():
            job.query = None
            job.starting = self._executor.submit(_go_on, self._runtime, query, job.plan)
            return
        recovered = now - job.started_at >= RECOVERED_SECONDS
        if recovered:
            job.backoff_seconds = 0.0
        error = "" if recovered else job.status.error
        job.status = replace(job.status, error=error, progress=query.progress())

    def _fail(self, job: _Job, error: str, now: float) -> None:
        job.backoff_seconds = min(max(2 * job.backoff_seconds, FIRST_BACKOFF_SECONDS), LAST_BACKOFF_SECONDS)
        job.next_start_at = now + job.backoff_seconds
        job.status = replace(job.status, state=JobState.FAILING, error=error)
        log.error("job %s failed, next start in %g s: %s", job.plan.job_id, job.backoff_seconds, error)

    def _release(self, job_id: str) -> None:
        job = self._jobs.pop(job_id)
        status = replace(job.status, state=JobState.STOPPED)
        self._stopping[job_id] = (status, self._executor.submit(_end, job.starting, job.query))
        log.info("job %s is being stopped", job_id)

    def _collect_stopped(self) -> dict[str, JobStatus]:
        done = [job_id for job_id, (_, future) in self._stopping.items() if future.done()]
        return {job_id: self._stopping.pop(job_id)[0] for job_id in done}


def brief(error: BaseException | str, limit: int = 600, because: str = "") -> str:
    """Return an error's message and its cause without stack traces, which in Java's errors fill pages."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    kept = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "==="))]
    text = "\n".join(kept)
    cause = f"\ncaused by {because[: limit // 2]}" if because and because not in text else ""
    return text[: limit - len(cause)] + cause


def _go_on(runtime: Runtime, query: Query, plan: JobPlan) -> Query:
    """Stop the query of a phase, and start the job's next phase from its checkpoint, as after a crash."""
    query.stop()
    return runtime.start(plan, query.phase)


def _end(starting: Future[Query] | None, query: Query | None) -> None:
    if starting is not None and not starting.cancel() and starting.exception() is None:
        query = starting.result()
    if query is not None:
        query.stop()
