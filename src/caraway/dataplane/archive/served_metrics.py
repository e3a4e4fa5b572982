"""The metrics of queries and of the features that they served, under the names that they have in the API."""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterable, Sequence

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.process.tallies import Notes, Times

EXTRACT_ERRORS = Counter(
    "caraway_extract_features_error_counter", "Queries that failed.", ["workflow", "target", "code"]
)
SERVED_ROWS = Counter(
    "caraway_served_rows_counter", "Rows of queries with log=true: kept on the topic, or lost.", ["workflow", "outcome"]
)
QUERY_TARGET = "extract_features"
DEFAULT_WORKFLOW = "default"
# At most this many workflows are counted separately. Clients choose the names of workflows, so there could be any
# number of them. Further workflows are counted together as "other".
MAX_WORKFLOWS = 100
OTHER_WORKFLOWS = "other"
# The bounds of the buckets of times, in seconds.
LATENCY_BOUNDS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# At most this many combinations of outputs and workflow are counted separately in memory. If there are more,
# `Extractions` adds them up by feature, and counts combinations from zero again.
MAX_COMBINATIONS = 1_000


class Extractions(Collector):
    """Counts queries: the time of each, and the extractions of each feature.

    A query costs one note; the counts of the features are computed when somebody reads the metrics.
    """

    def __init__(self) -> None:
        """Create counts of zero."""
        self._rows: Counts[tuple[tuple[str, ...], str]] = Counts()
        self._totals: Counts[tuple[str, str]] = Counts()
        self._workflows: set[str] = set()
        self._times = Times(
            "caraway_extract_features_latency_seconds",
            "Time to compute the features of a query.",
            ["workflow", "target"],
            LATENCY_BOUNDS,
        )
        self._notes = Notes(self._add_up)

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

    def count(self, outputs: tuple[str, ...], workflow: str, rows: int, seconds: float) -> None:
        """Count a query that took `seconds`: `rows` extractions of each of `outputs`."""
        self._notes.note((outputs, workflow, rows, seconds))

    def _add_up(self, notes: Sequence[tuple[tuple[str, ...], str, int, float]]) -> None:
        # Notes that arrive together mostly belong to few plans and workflows, so each such group is added at once. The
        # outputs of a plan are recognised by the `id` of their tuple, because hashing their names costs as much as the
        # rest of a note. Equal outputs of two plans are added up in `_rows`.
        grouped: defaultdict[tuple[int, str], list[tuple[tuple[str, ...], str, int, float]]] = defaultdict(list)
        for note in notes:
            grouped[id(note[0]), note[1]].append(note)
        for alike in grouped.values():
            outputs, workflow, *_ = alike[0]
            self._rows[outputs, workflow] += sum(rows for _, _, rows, _ in alike)
            self._times.add((workflow, QUERY_TARGET), [seconds for *_, seconds in alike])
        if len(self._rows) > MAX_COMBINATIONS:
            self._totals, self._rows = self._sums(), Counts()

    def _sums(self) -> Counts[tuple[str, str]]:
        totals = self._totals.copy()
        for (outputs, workflow), rows in self._rows.items():
            for name in outputs:
                totals[name, workflow] += rows
        return totals

    def collect(self) -> Iterable[Metric]:
        """Return the times, and the counts per feature."""
        _, family = self.describe()
        with self._notes.settled():
            sums, times = self._sums(), self._times.family()
        for (name, workflow), rows in sums.items():
            featureset, _, feature = name.partition(".")
            family.add_metric([featureset, feature, workflow, QUERY_TARGET], rows)
        return [times, family]

    def describe(self) -> tuple[HistogramMetricFamily, CounterMetricFamily]:
        """Return the metrics without counts."""
        labels = ["featureset", "feature", "workflow", "target"]
        counter = CounterMetricFamily("caraway_extract_features_counter", "Extractions per feature.", labels=labels)
        return self._times.describe(), counter


EXTRACTIONS = Extractions()
REGISTRY.register(EXTRACTIONS)
