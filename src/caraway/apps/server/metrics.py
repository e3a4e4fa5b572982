"""The metrics of the server, under the names that they have in the API."""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import REGISTRY, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.dataplane.index.feeding.lag import IndexLag
from caraway.dataplane.index.feeding.worker import IndexStatus
from caraway.dataplane.sinks.metrics import BACKLOG, FAILING, WRITTEN_AT
from caraway.dataplane.sinks.sinks import SinkStatus
from caraway.dataplane.sources.sources import SourceStatus
from caraway.dtypes.durations import US_PER_SECOND
from caraway.graph.plan.model import GraphPlan
from caraway.process.tallies import Notes, Times
from caraway.state.losses import Loss
from caraway.state.model import DesiredState, JobRecord, JobState

# By default prometheus_client adds a series with the time of creation for each series of a counter or histogram. Nobody
# reads these times, and for counters they would double the text of `GET /metrics`.
disable_created_metrics()  # type: ignore[no-untyped-call]

SOURCE_OPEN = Gauge(
    "caraway_source_open",
    "1 while a source is read, 0 when it was bounded and has ended.",
    ["source_name", "dataset_name"],
)
SOURCE_WATERMARK = Gauge(
    "caraway_source_watermark_timestamp",
    "The newest event time that came from a source, less its disorder, in seconds since the epoch.",
    ["source_name", "dataset_name"],
)
SOURCE_ANSWERED = Gauge(
    "caraway_source_last_success_timestamp",
    "When a source last answered, in seconds since the epoch.",
    ["source_name", "dataset_name"],
)
SOURCES = Gauge("caraway_source_dataset_metrics", "How sources are doing.", ["source_name", "dataset_name", "metric"])
PIPELINES = Gauge("caraway_pipeline_metrics", "How pipelines are doing.", ["pipeline_name", "dataset_name", "metric"])
JOBS = Gauge("caraway_job_metrics", "How streaming jobs are doing.", ["pipeline_name", "dataset_name", "job", "metric"])
INDEX_LAG_RECORDS = Gauge(
    "caraway_index_lag_records", "Records of a dataset that aren't in its index yet.", ["dataset_name"]
)
INDEX_LAG_SECONDS = Gauge(
    "caraway_index_lag_seconds", "Age of what a dataset's index lacks; 0 if it lacks nothing.", ["dataset_name"]
)
LOSSES = Gauge(
    "caraway_lost_records",
    "1 while a topic is told to lack records that a reader of it had read, or a job had written.",
    ["topic", "reader"],
)
FRESHNESS = Gauge(
    "caraway_freshness_seconds",
    "How old what queries read of a dataset is: the age of the oldest heartbeat that isn't readable yet, or the time "
    "that the last one took.",
    ["branch", "dataset"],
)
HEARTBEATS = Histogram(
    "caraway_heartbeat_delay_seconds",
    "Time from the acceptance of a heartbeat until a dataset's index has it.",
    ["dataset"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
# The metrics of a job, by the names that they have in the label `metric`. `running` and `starts` come from the job's
# row in Postgres, the others from the progress that its engine reports there (docs/inside/jobs.md).
JOB_METRICS = frozenset(
    {
        "running",
        "starts",
        "lag_records",
        "lag_seconds",
        "rows_per_second",
        "state_bytes",
        "checkpoint_ms",
        "dead_letters",
    }
)
# The bounds of the histogram buckets for the times of requests, in seconds.
LATENCY_BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Requests(Collector):
    """Counts requests, and the time of each."""

    def __init__(self) -> None:
        """Create counts of zero."""
        self._answers: Counts[tuple[str, int]] = Counts()
        self._times = Times(
            "caraway_request_latency_seconds",
            "Time from the first byte of a request to its answer.",
            ["target"],
            LATENCY_BOUNDS,
        )
        self._notes = Notes(self._add_up)

    def count(self, target: str, status: int, seconds: float) -> None:
        """Count a request to an endpoint that was answered with a status after some seconds."""
        self._notes.note((target, status, seconds))

    def _add_up(self, notes: Sequence[tuple[str, int, float]]) -> None:
        # Notes that come together are mostly of few endpoints, so the times of each endpoint are added at once.
        grouped: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        for target, status, seconds in notes:
            grouped[target, status].append(seconds)
        for (target, status), times in grouped.items():
            self._answers[target, status] += len(times)
            self._times.add((target,), times)

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of requests by target and status, and their times by target."""
        family, _ = self.describe()
        with self._notes.settled():
            for (target, status), number in self._answers.items():
                family.add_metric([target, str(status)], number)
            return [family, self._times.family()]

    def describe(self) -> tuple[CounterMetricFamily, HistogramMetricFamily]:
        """Return the metrics without counts."""
        counter = CounterMetricFamily("caraway_request_counter", "API calls.", labels=["target", "code"])
        return counter, self._times.describe()


REQUESTS = Requests()
REGISTRY.register(REQUESTS)


def set_backlogs(plan: GraphPlan, positions: Sequence[IndexStatus]) -> None:
    """Set the number of records of each dataset that its index still has to process, by source or pipeline."""
    SOURCES.clear()
    PIPELINES.clear()
    lags = {position.dataset: position.lag for position in positions if position.lag is not None}
    for ingest in plan.ingests:
        if (lag := lags.get(ingest.topic.dataset)) is not None:
            SOURCES.labels(ingest.source.connector.system_name, ingest.topic.dataset, "backlog").set(lag)
    for job in plan.jobs:
        if (lag := lags.get(job.dataset)) is not None:
            PIPELINES.labels(job.pipeline, job.dataset, "backlog").set(lag)


def set_lags(lags: Iterable[IndexLag]) -> None:
    """Set the lag of each dataset's index; of several branches' indexes of a dataset, the greatest counts."""
    INDEX_LAG_RECORDS.clear()
    INDEX_LAG_SECONDS.clear()
    records: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for lag in lags:
        records[lag.dataset] = max(records.get(lag.dataset, 0), lag.records)
        seconds[lag.dataset] = max(seconds.get(lag.dataset, 0.0), lag.seconds)
    for dataset, waiting in records.items():
        INDEX_LAG_RECORDS.labels(dataset).set(waiting)
        INDEX_LAG_SECONDS.labels(dataset).set(seconds[dataset])


def set_losses(losses: Iterable[Loss]) -> None:
    """Set which topics lack records that readers had read."""
    LOSSES.clear()
    for loss in losses:
        LOSSES.labels(loss.topic, loss.kind).set(1)


def observe_heartbeat(dataset: str, seconds: float) -> None:
    """Count a heartbeat that an index has reached."""
    HEARTBEATS.labels(dataset).observe(seconds)


def set_freshness(branches: Mapping[str, Iterable[tuple[str, float]]]) -> None:
    """Set the freshness of the datasets of each branch, in seconds."""
    FRESHNESS.clear()
    for branch, datasets in branches.items():
        for dataset, seconds in datasets:
            FRESHNESS.labels(branch, dataset).set(seconds)


def set_sources(statuses: Iterable[SourceStatus]) -> None:
    """Set the metrics of the sources that this server reads: how far they are, and whether they fail.

    A dataset may have several sources in one system. Their lags and loads are added up; of their times the oldest one
    counts, one that fails counts as all of them, and one that is open, too. `set_backlogs` comes first, which removes
    what `SOURCES` had.
    """
    for family in (SOURCE_OPEN, SOURCE_WATERMARK, SOURCE_ANSWERED):
        # All values are removed first, so that none remains of a source that another server, or no server, reads now.
        family.clear()
    owned: dict[tuple[str, str], list[SourceStatus]] = {}
    for status in statuses:
        if status.owned:
            owned.setdefault((status.system, status.dataset), []).append(status)
    for labels, of in owned.items():
        SOURCES.labels(*labels, "failing").set(any(status.error for status in of))
        SOURCE_OPEN.labels(*labels).set(any(status.state != "closed" for status in of))
        if lags := [status.lag for status in of if status.lag is not None]:
            SOURCES.labels(*labels, "lag_records").set(sum(lags))
        if answers := [status.polled_at for status in of if status.polled_at is not None]:
            SOURCE_ANSWERED.labels(*labels).set(min(answers))
        if watermarks := [status.watermark_us for status in of if status.watermark_us is not None]:
            SOURCE_WATERMARK.labels(*labels).set(min(watermarks) / US_PER_SECOND)
        if newest := [status.newest_us for status in of if status.newest_us is not None]:
            SOURCES.labels(*labels, "event_timestamp_seconds").set(max(newest) / US_PER_SECOND)
        if loads := [status.progress for status in of if status.progress is not None]:
            SOURCES.labels(*labels, "load_done").set(sum(load.done for load in loads))
            SOURCES.labels(*labels, "load_total").set(sum(load.total for load in loads))


def set_sinks(statuses: Iterable[SinkStatus]) -> None:
    """Set the metrics of the sinks that this server writes: how far they are, and whether they fail.

    Several sinks of a dataset in one system count as the sources in `set_sources` do.
    """
    for family in (BACKLOG, FAILING, WRITTEN_AT):
        family.clear()
    owned: dict[tuple[str, str], list[SinkStatus]] = {}
    for status in statuses:
        if status.owned:
            owned.setdefault((status.system, status.dataset), []).append(status)
    for labels, of in owned.items():
        FAILING.labels(*labels).set(any(status.error for status in of))
        if backlogs := [status.backlog for status in of if status.backlog is not None]:
            BACKLOG.labels(*labels).set(sum(backlogs))
        if times := [status.written_at for status in of if status.written_at is not None]:
            WRITTEN_AT.labels(*labels).set(min(times))


def set_jobs(jobs: Iterable[JobRecord]) -> None:
    """Set the metrics of the jobs that must run, from the last reports of their engine."""
    JOBS.clear()
    for job in jobs:
        if job.desired is not DesiredState.RUNNING:
            continue
        figures = {"running": float(job.state is JobState.RUNNING), "starts": job.attempts, **job.progress}
        for metric in JOB_METRICS & figures.keys():
            JOBS.labels(job.pipeline, job.dataset, job.job_id, metric).set(float(str(figures[metric])))
