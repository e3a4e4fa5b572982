"""The metrics of expectations, which each server shows for the whole deployment."""

from collections.abc import Iterable, Mapping

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.compute.expectations.counts import Counts

NAME = "caraway_expectation_status_counter"
# Branch, dataset, and the name of the expectation.
Key = tuple[str, str, str]


class QualityFigures(Collector):
    """The counts of expectations of the served branches."""

    def __init__(self) -> None:
        """Create no counts."""
        self._totals: Mapping[Key, Counts] = {}

    def set(self, totals: Mapping[Key, Counts]) -> None:
        """Show the counts of all rows."""
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        """Return the counts."""
        (family,) = self.describe()
        for (branch, dataset, name), counts in self._totals.items():
            family.add_metric([branch, dataset, name, "success"], counts.evaluated - counts.failed)
            family.add_metric([branch, dataset, name, "failure"], counts.failed)
        return [family]

    def describe(self) -> list[CounterMetricFamily]:
        """Return the metric without counts."""
        labels = ["branch", "dataset", "expectation_name", "status"]
        return [CounterMetricFamily(NAME, "Rows that were checked against an expectation.", labels=labels)]


QUALITY_FIGURES = QualityFigures()
REGISTRY.register(QUALITY_FIGURES)
