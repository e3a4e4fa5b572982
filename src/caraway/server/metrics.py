"""The metrics of the server, under the names that they have in the API."""

from collections import Counter as Counts
from collections.abc import Iterable, Sequence
from functools import lru_cache

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.index.feeding.worker import IndexStatus
from caraway.plan.model import GraphPlan
from caraway.state.model import DesiredState, JobRecord, JobState

# The series of creation times would double the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

REQUESTS = Counter("caraway_request_counter", "API calls.", ["target", "code"])
LATENCY = Histogram(
    "caraway_request_latency_seconds",
    "Time from the first byte of a request to its answer.",
    ["target"],
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
EXTRACT_LATENCY = Histogram(
    "caraway_extract_features_latency_seconds",
    "Time to compute the features of a query.",
    ["workflow", "target"],
    buckets=(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
EXTRACT_ERRORS = Counter(
    "caraway_extract_features_error_counter", "Queries that failed.", ["workflow", "target", "code"]
)
SERVED_ROWS = Counter(
    "caraway_served_rows_counter", "Rows of queries with log=true: kept on the topic, or lost.", ["workflow", "outcome"]
)
ARCHIVED_ROWS = Counter("caraway_archived_rows_counter", "Rows of served features that were written to the archive.")
SOURCES = Gauge("caraway_source_dataset_metrics", "How sources are doing.", ["source_name", "dataset_name", "metric"])
PIPELINES = Gauge("caraway_pipeline_metrics", "How pipelines are doing.", ["pipeline_name", "dataset_name", "metric"])
JOBS = Gauge("caraway_job_metrics", "How streaming jobs are doing.", ["pipeline_name", "dataset_name", "job", "metric"])
# The numbers of a job's progress that get a metric (docs/engine.md).
JOB_METRICS = frozenset(
    {
        "running",
        "starts",
        "lag_records",
        "lag_seconds",
        "rows_per_second",
        "state_rows",
        "state_bytes",
        "checkpoint_ms",
        "dead_letters",
    }
)
QUERY_TARGET = "extract_features"
DEFAULT_WORKFLOW = "default"
# Bound on the workflows that are counted apart. Clients choose the names; further ones are counted as "other".
MAX_WORKFLOWS = 100
OTHER_WORKFLOWS = "other"
# These caches exist because prometheus_client takes longer to find a series by its labels than to count.
REQUESTS_OF = lru_cache(maxsize=1_000)(REQUESTS.labels)
LATENCY_OF = lru_cache(maxsize=100)(LATENCY.labels)
EXTRACT_LATENCY_OF = lru_cache(maxsize=MAX_WORKFLOWS + 1)(EXTRACT_LATENCY.labels)
# Bound on the combinations of outputs that are counted before they are added up by feature.
MAX_COMBINATIONS = 1_000


class FeatureCounts(Collector):
    """Counts extractions per feature.

    A query costs one addition, to the count of its combination of outputs; the counts of the features are computed when
    somebody reads the metrics.
    """

    def __init__(self) -> None:
        """Create counts of zero."""
        self._rows: Counts[tuple[tuple[str, ...], str]] = Counts()
        self._totals: Counts[tuple[str, str]] = Counts()
        self._workflows: set[str] = set()

    def workflow(self, name: str | None) -> str:
        """Return the label for the workflow that a client names."""
        if name is None or name == DEFAULT_WORKFLOW:
            return DEFAULT_WORKFLOW
        if name in self._workflows:
            return name
        if len(self._workflows) >= MAX_WORKFLOWS:
            return OTHER_WORKFLOWS
        self._workflows.add(name)
        return name

    def add(self, outputs: tuple[str, ...], workflow: str, rows: int) -> None:
        """Count a query: `rows` extractions of each of `outputs`."""
        self._rows[outputs, workflow] += rows
        if len(self._rows) > MAX_COMBINATIONS:
            self._totals, self._rows = self._sums(), Counts()

    def _sums(self) -> Counts[tuple[str, str]]:
        totals = self._totals.copy()
        for (outputs, workflow), rows in list(self._rows.items()):
            for name in outputs:
                totals[name, workflow] += rows
        return totals

    def collect(self) -> Iterable[Metric]:
        """Return the counts per feature."""
        family = CounterMetricFamily(
            "caraway_extract_features_counter",
            "Extractions per feature.",
            labels=["featureset", "feature", "workflow", "target"],
        )
        for (name, workflow), rows in self._sums().items():
            featureset, _, feature = name.partition(".")
            family.add_metric([featureset, feature, workflow, QUERY_TARGET], rows)
        return [family]

    def describe(self) -> Sequence[Metric]:
        """Return the metric without counting."""
        return [CounterMetricFamily("caraway_extract_features_counter", "Extractions per feature.")]


def set_backlogs(plan: GraphPlan, positions: Sequence[IndexStatus]) -> None:
    """Set the number of records of each dataset that its index still has to process, by source or pipeline."""
    SOURCES.clear()
    PIPELINES.clear()
    lags = {position.dataset: position.lag for position in positions if position.lag is not None}
    for ingest in plan.ingests:
        if (lag := lags.get(ingest.topic.dataset)) is not None:
            SOURCES.labels(ingest.connector.name, ingest.topic.dataset, "backlog").set(lag)
    for job in plan.jobs:
        if (lag := lags.get(job.dataset)) is not None:
            PIPELINES.labels(job.pipeline, job.dataset, "backlog").set(lag)


def set_jobs(jobs: Iterable[JobRecord]) -> None:
    """Set the metrics of the jobs that must run, from the last reports of their engine."""
    JOBS.clear()
    for job in jobs:
        if job.desired is not DesiredState.RUNNING:
            continue
        figures = {"running": float(job.state is JobState.RUNNING), "starts": job.attempts, **job.progress}
        for metric in JOB_METRICS & figures.keys():
            JOBS.labels(job.pipeline, job.dataset, job.job_id, metric).set(float(str(figures[metric])))


FEATURE_COUNTS = FeatureCounts()
REGISTRY.register(FEATURE_COUNTS)
