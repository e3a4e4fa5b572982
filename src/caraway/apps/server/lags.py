"""The lag of indexes and jobs, looked at once a second: log lines about it, and which log requests are refused."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from caraway.apps.server.history import History
from caraway.apps.server.rates import Rates
from caraway.dataplane.index.feeding.lag import IndexLag, IndexLags
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.ingest.backpressure import Backpressure, Late
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.process.recurring import Recurring
from caraway.state.model import JobRecord, JobState

LOG = structlog.get_logger(__name__)

# The seconds between two looks at the indexes, which take some microseconds each. The last look decides whether a
# log request is refused because indexes are behind.
LOOK_S = 1.0
# The seconds between two reads of the jobs' lags from Postgres, where the engines report them every few seconds.
JOBS_S = 5.0
STOP_S = 3.0
# An index that is behind by more than this many seconds is mentioned in the log. Bursts that are served within this
# time are common.
LOGGED_S = 30.0
# The seconds between two lines of the log about indexes that are behind; each line lists at most `LISTED` of them.
LOG_INTERVAL_S = 60.0
LISTED = 10
# The minutes that the charts of lags and of rates cover, and the most figures of each kind: less than 2 MB in all.
CHARTED, FIGURES = 3 * 60, 60
# The name of the figure with the greatest lag of all indexes.
WORST = "greatest"


@dataclass(frozen=True, slots=True)
class _Reads:
    """The topics that each index and job reads, by its name, and for each topic those from which it is written."""

    indexes: Mapping[str, frozenset[str]]
    jobs: Mapping[str, frozenset[str]]
    inputs: Mapping[str, frozenset[str]]

    def sources_of(self, topics: frozenset[str]) -> frozenset[str]:
        """Return some topics and all those from which they are computed."""
        found, new = set[str](), set(topics)
        while new:
            found |= new
            new = {before for topic in new for before in self.inputs.get(topic, ())} - found
        return frozenset(found)


def pace_of(job_id: str) -> str:
    """Return the name of the figure with a job's rows a second."""
    return f"{job_id} rows"


NOTHING = _Reads({}, {}, {})


class Lags:
    """Looks at the lags of this server's indexes and of the jobs, in threads of its own.

    Attributes:
        past: The lags of the last hours in seconds, by the names of indexes and jobs, and the rows a second of jobs.
        traffic: The rates of the last hours (`caraway.apps.server.rates`).
    """

    def __init__(
        self,
        positions: Callable[[], Sequence[IndexStatus]],
        jobs: Callable[[], Iterable[JobRecord]],
        backpressure: Backpressure,
        clock: Callable[[], float] = time.time,
        rates: Rates | None = None,
    ) -> None:
        """Prepare; nothing is looked at before `start`.

        Args:
            positions: Returns the progress of this server's indexes.
            jobs: Reads the jobs that must run, from Postgres.
            backpressure: Learns to which topics nothing should be written.
            clock: Returns the time in seconds since the epoch.
            rates: Tells the rates of queries and rows once a minute; None: they aren't known.
        """
        self.past, self.traffic = History(CHARTED, FIGURES), History(CHARTED, FIGURES)
        self._rates = rates
        self._job_figures: Mapping[str, float] = {}
        self._positions = positions
        self._jobs = jobs
        self._backpressure = backpressure
        self._clock = clock
        self._indexes = IndexLags(clock)
        self._reads = NOTHING
        # The jobs whose lag is beyond the bounds of backpressure, by id.
        self._late_jobs: Mapping[str, Late] = {}
        self._logged: frozenset[str] = frozenset()
        self._logged_at = float("-inf")
        self._recurring = (
            Recurring("index-lag", self.refresh, LOOK_S),
            Recurring("job-lag", self.refresh_jobs, JOBS_S),
        )

    def start(self) -> None:
        """Start the threads."""
        for recurring in self._recurring:
            recurring.start()

    def stop(self) -> None:
        """Stop the threads."""
        # All threads are asked to stop before one is waited for, so that they stop at the same time.
        for recurring in self._recurring:
            recurring.stop(0)
        for recurring in self._recurring:
            recurring.stop(STOP_S)

    def follow(self, plans: Iterable[GraphPlan]) -> None:
        """Go by the plans of the commits that branches serve; an index that none of them has refuses nothing."""
        self._reads = _reads_of(plans)

    def look(self) -> tuple[IndexLag, ...]:
        """Return the lag of each index now."""
        return self._indexes.look(self._positions())

    def refresh(self) -> None:
        """Look at the indexes, log what is behind, and set which log requests are refused."""
        lags = self.look()
        self._log(lags)
        reads, bounds = self._reads, self._backpressure.bounds
        late: dict[str, Late] = {}
        for lag in lags:
            # `GET /status` shows the whole backlog of an index, but only the growth of the backlog counts here. While
            # an index is built from the history of its topic, refusing new rows wouldn't help it.
            if bounds.exceeded_by(lag.grown, lag.seconds):
                found = Late(name=f"the index of {lag.dataset}", records=lag.records, seconds=lag.seconds)
                late |= dict.fromkeys(reads.sources_of(reads.indexes.get(lag.asset, frozenset())), found)
        for job, found in self._late_jobs.items():
            late |= dict.fromkeys(reads.sources_of(reads.jobs.get(job, frozenset())), found)
        self._backpressure.set(late)
        now = self._clock()
        worst = max((lag.seconds for lag in lags), default=0.0)
        self.past.note(now, {WORST: worst, **self._job_figures, **{lag.asset: lag.seconds for lag in lags}})
        if self._rates is not None:
            self.traffic.note(now, self._rates.since_last(now))

    def refresh_jobs(self) -> None:
        """Read the lags of the jobs. Raises `UnavailableError` if Postgres doesn't answer; then no job counts."""
        try:
            jobs = self._jobs()
        except UnavailableError:
            self._late_jobs, self._job_figures = {}, {}
            raise
        bounds = self._backpressure.bounds
        late: dict[str, Late] = {}
        figures: dict[str, float] = {}
        for job in jobs:
            # A job that fails doesn't catch up while clients wait, so no log request is refused because such a job is
            # behind.
            records, seconds = job.progress.get("lag_records"), job.progress.get("lag_seconds")
            pace = job.progress.get("rows_per_second")
            if job.state is JobState.RUNNING:
                known = {job.job_id: seconds, pace_of(job.job_id): pace}
                figures |= {name: value for name, value in known.items() if isinstance(value, int | float)}
            if (
                job.state is JobState.RUNNING
                and isinstance(records, int)
                and isinstance(seconds, int | float)
                and bounds.exceeded_by(records, seconds)
            ):
                late[job.job_id] = Late(name=f"the job of {job.dataset}", records=records, seconds=seconds)
        self._late_jobs, self._job_figures = late, figures

    def _log(self, lags: Iterable[IndexLag]) -> None:
        """Write a line if an index is behind for long, at most one each `LOG_INTERVAL_S`, and one when it is back."""
        behind = {lag.dataset: lag for lag in lags if lag.seconds > LOGGED_S}
        if back := self._logged - behind.keys():
            self._logged -= back
            LOG.info("indexes are no longer behind", datasets=sorted(back)[:LISTED], number=len(back))
        now = self._clock()
        if behind and now >= self._logged_at + LOG_INTERVAL_S:
            self._logged, self._logged_at = frozenset(behind), now
            worst = sorted(behind.values(), key=lambda lag: -lag.seconds)[:LISTED]
            LOG.warning(
                "indexes are behind their topics, so queries read old values",
                lags={lag.dataset: {"records": lag.records, "seconds": round(lag.seconds)} for lag in worst},
                number=len(behind),
            )


def _reads_of(plans: Iterable[GraphPlan]) -> _Reads:
    indexes: dict[str, frozenset[str]] = {}
    jobs: dict[str, frozenset[str]] = {}
    inputs: dict[str, frozenset[str]] = {}
    for plan in plans:
        for index in plan.indexes:
            indexes[index.asset.hex()] = frozenset({index.topic})
            if index.emits is not None:
                inputs[index.emits.name] = inputs.get(index.emits.name, frozenset()) | {index.topic}
        for job in plan.jobs:
            read = frozenset(topic.name for topic in job.inputs)
            jobs[job.job_id] = read
            inputs[job.output.name] = inputs.get(job.output.name, frozenset()) | read
    return _Reads(indexes, jobs, inputs)
