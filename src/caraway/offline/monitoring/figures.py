"""The metrics of skew and drift, which each server shows for the whole deployment; the watches of served features."""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.state.drift import DriftStore
from caraway.state.findings import MISMATCHES, UNCHECKED, Finding
from caraway.state.profiles import Found
from caraway.state.skew import SkewStore
from caraway.state.watched import WatchedStore

S = TypeVar("S", bound=WatchedStore)
# The values of the metric labels that name a column, and a distance that was found for the column.
LabelledDistance = tuple[tuple[str, str, str], Found]


class SkewFigures(Collector):
    """The counts of the skew watch, which are those of the whole deployment in each server."""

    def __init__(self) -> None:
        """Create counts of zero."""
        self._totals: Mapping[tuple[str, str, Finding], int] = {}

    def set(self, totals: Mapping[tuple[str, str, Finding], int]) -> None:
        """Show the counts of all time by branch, feature and finding."""
        self._totals = totals

    def collect(self) -> Iterable[Metric]:
        """Return the counts per feature."""
        checked, mismatches, unchecked = self.describe()
        rows: Counts[tuple[str, str]] = Counts()
        for (branch, name, finding), count in self._totals.items():
            if finding in UNCHECKED:
                unchecked.add_metric([branch, *_parts(name), finding.value], count)
                continue
            rows[branch, name] += count
            if finding in MISMATCHES:
                mismatches.add_metric([branch, *_parts(name), finding.value], count)
        for (branch, name), count in rows.items():
            checked.add_metric([branch, *_parts(name)], count)
        return checked, mismatches, unchecked

    def describe(self) -> tuple[CounterMetricFamily, CounterMetricFamily, CounterMetricFamily]:
        """Return the metrics without counts."""
        labels = ["branch", "featureset", "feature"]
        return (
            CounterMetricFamily("caraway_skew_rows_checked", "Served values that were computed again.", labels=labels),
            CounterMetricFamily(
                "caraway_skew_mismatches",
                "Served values that differ from those that were computed again.",
                labels=[*labels, "reason"],
            ),
            CounterMetricFamily(
                "caraway_skew_unchecked",
                "Served values that can't be computed again.",
                labels=[*labels, "reason"],
            ),
        )


def _parts(name: str) -> tuple[str, str]:
    featureset, _, feature = name.partition(".")
    return featureset, feature


SKEW_FIGURES = SkewFigures()
REGISTRY.register(SKEW_FIGURES)


@dataclass(frozen=True, slots=True)
class DriftMetrics:
    """The metrics of drift.

    Attributes:
        prefix: The beginning of their names.
        labels: The labels that name a column.
        distance: The description of the distances.
        drifted: The description of what is 1 if a column has drifted.
    """

    prefix: str
    labels: tuple[str, str, str]
    distance: str
    drifted: str


class DriftFigures(Collector):
    """The distances of columns that were found last, which are those of the whole deployment in each server."""

    def __init__(self, metrics: DriftMetrics) -> None:
        """Create no distances."""
        self._metrics = metrics
        self._found: Sequence[LabelledDistance] = ()

    def set(self, found: Sequence[LabelledDistance]) -> None:
        """Show these distances."""
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """Return the distances, and for each column whether it has drifted."""
        distances, drifted = self.describe()
        alarms: dict[tuple[str, str, str], bool] = {}
        for column, one in self._found:
            distances.add_metric([*column, one.distance], one.value)
            alarms[column] = alarms.get(column, False) or one.drifted
        for column, alarm in alarms.items():
            drifted.add_metric(column, float(alarm))
        return distances, drifted

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        """Return the metrics without values."""
        made = self._metrics
        return (
            GaugeMetricFamily(f"{made.prefix}_distance", made.distance, labels=[*made.labels, "distance"]),
            GaugeMetricFamily(f"{made.prefix}_drifted", made.drifted, labels=made.labels),
        )


def of_features(found: Iterable[Found]) -> list[LabelledDistance]:
    """Return the distances of features with the values of their labels."""
    return [((one.scope, *_parts(one.column)), one) for one in found]


FEATURE_DRIFT = DriftMetrics(
    "caraway_drift",
    ("branch", "featureset", "feature"),
    "Distance of served features from their reference.",
    "1 if a served feature has drifted, else 0.",
)
DRIFT_FIGURES = DriftFigures(FEATURE_DRIFT)
REGISTRY.register(DRIFT_FIGURES)
DATASET_DRIFT_FIGURES = DriftFigures(
    DriftMetrics(
        "caraway_drift_dataset",
        ("branch", "dataset", "field"),
        "Distance of a dataset's rows from those of a day before.",
        "1 if a field of a dataset has drifted, else 0.",
    )
)
REGISTRY.register(DATASET_DRIFT_FIGURES)


@dataclass(frozen=True, slots=True)
class ServedWatch(Generic[S]):
    """A watch of served features, as a server knows it. Only the process of the watches imports its module.

    Attributes:
        name: Its name, which is that of its section of the settings.
        kind: Its `Kind`, as "module:name".
        store: Makes the store of its findings.
        show: Shows the findings of a store as metrics.
    """

    name: str
    kind: str
    store: Callable[[sa.Engine], S]
    show: Callable[[S], None]


SERVED_WATCHES: tuple[ServedWatch[Any], ...] = (
    ServedWatch(
        "skew",
        "caraway.offline.monitoring.skew.watch:SKEW",
        SkewStore,
        lambda store: SKEW_FIGURES.set(store.totals()),
    ),
    ServedWatch(
        "drift",
        "caraway.offline.monitoring.drift.watch:DRIFT",
        DriftStore,
        lambda store: DRIFT_FIGURES.set(of_features(store.profiles.found())),
    ),
)
