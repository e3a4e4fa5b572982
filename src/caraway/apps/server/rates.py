"""The rates of queries and rows, computed once a minute from the counters of the metrics."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import Metric

from caraway.apps.server.history import STEP_S

ROWS, QUERIES, ERRORS, MEAN, SLOWEST = "rows", "queries", "errors", "mean seconds", "slowest hundredth"
_QUERY_TIMES = "caraway_extract_features_latency_seconds"
# The counters from which rates are computed, with the name of the rate, and the labels by which it is also computed
# separately.
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "caraway_source_dataset_counter_total": (ROWS, ("dataset_name",)),
    "caraway_extract_features_error_counter_total": (ERRORS, ()),
    f"{_QUERY_TIMES}_count": (QUERIES, ()),
    f"{_QUERY_TIMES}_sum": (MEAN, ()),
    f"{_QUERY_TIMES}_bucket": (SLOWEST, ("le",)),
    "caraway_extract_features_counter_total": ("features", ("featureset", "feature")),
}


def part(name: str, *labels: str) -> str:
    """Return the name of the rate of one dataset's rows, or of one feature's extractions."""
    return f"{name} {'.'.join(labels)}"


def rows_of(dataset: str) -> str:
    """Return the name of the rate of rows that a dataset got from its sources."""
    return part(ROWS, dataset)


def extractions_of(feature: str) -> str:
    """Return the name of the rate of extractions of a feature."""
    return part("features", feature)


class Rates:
    """Remembers the counters of the last minute, and tells by how much they grew."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Read the metrics with `collect`."""
        self._collect = collect
        self._at = 0.0
        self._totals: Mapping[str, float] | None = None

    def since_last(self, now: float) -> dict[str, float]:
        """Return the rates of the last minute, each a second, and the times of queries; nothing if it isn't over.

        Args:
            now: The time in seconds since the epoch.
        """
        passed = now - self._at
        if 0 <= passed < STEP_S:
            return {}
        before, totals = self._totals, self._read()
        self._at, self._totals = now, totals
        if before is None or passed <= 0:
            return {}
        # A process that started again counts from zero, so counters may shrink.
        grown = {name: max(0.0, total - before.get(name, 0.0)) for name, total in totals.items()}
        found = {name: grown.get(name, 0.0) / passed for name in (ROWS, QUERIES, ERRORS)}
        if queries := grown.get(QUERIES, 0.0):
            found[MEAN] = grown[MEAN] / queries
            bounds = sorted((float(name.split()[-1]), count) for name, count in grown.items() if _is_bucket(name))
            found[SLOWEST] = next((bound for bound, count in bounds if count >= 0.99 * queries), bounds[-1][0])
        apart = ((name, count) for name, count in grown.items() if _is_apart(name))
        return found | {name: count / passed for name, count in apart}

    def _read(self) -> Mapping[str, float]:
        totals: defaultdict[str, float] = defaultdict(float)
        for family in self._collect():
            for sample in family.samples:
                if sample.name not in _COUNTERS or sample.labels.get("metric", "msgs_processed") != "msgs_processed":
                    continue
                name, labels = _COUNTERS[sample.name]
                totals[name] += sample.value
                if labels:
                    totals[part(name, *(sample.labels[label] for label in labels))] += sample.value
        return totals


def _is_bucket(name: str) -> bool:
    return name.startswith(f"{SLOWEST} ") and not name.endswith("+Inf")


def _is_apart(name: str) -> bool:
    return name.startswith((f"{ROWS} ", "features "))
