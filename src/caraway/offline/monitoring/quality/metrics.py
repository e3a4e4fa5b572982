"""The metrics of expectations and of the drift of datasets, which each server shows for the whole deployment."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.compute.expectations.counts import Counts
from caraway.offline.monitoring.quality.profiles import FoundInField

NAME = "caraway_expectation_status_counter"
# Branch, dataset, and the name of the expectation.
Key = tuple[str, str, str]
# Branch, dataset, and a distance of one of its fields.
FieldDistance = tuple[str, str, FoundInField]


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


class DatasetDriftFigures(Collector):
    """The distances of datasets from a day before, as they were found last."""

    def __init__(self) -> None:
        """Create no distances."""
        self._found: Sequence[FieldDistance] = ()

    def set(self, found: Sequence[FieldDistance]) -> None:
        """Show these distances."""
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """Return the distances, and for each field whether it has drifted."""
        distances, drifted = self.describe()
        alarms: dict[tuple[str, str, str], bool] = {}
        for branch, dataset, one in self._found:
            distances.add_metric([branch, dataset, one.field, one.distance], one.value)
            key = branch, dataset, one.field
            alarms[key] = alarms.get(key, False) or one.drifted
        for key, alarm in alarms.items():
            drifted.add_metric(list(key), float(alarm))
        return distances, drifted

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        """Return the metrics without values."""
        labels = ["branch", "dataset", "field"]
        return (
            GaugeMetricFamily(
                "caraway_drift_dataset_distance",
                "Distance of a dataset's rows from those of a day before.",
                labels=[*labels, "distance"],
            ),
            GaugeMetricFamily(
                "caraway_drift_dataset_drifted", "1 if a field of a dataset has drifted, else 0.", labels=labels
            ),
        )


DATASET_DRIFT_FIGURES = DatasetDriftFigures()
REGISTRY.register(DATASET_DRIFT_FIGURES)
