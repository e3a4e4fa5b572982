"""The metrics of the watches of served features, which are those of the whole deployment in each server."""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from caraway.state.drift import DriftStore
from caraway.state.findings import MISMATCHES, UNCHECKED, Finding, Found
from caraway.state.skew import SkewStore
from caraway.state.watched import WatchedStore

S = TypeVar("S", bound=WatchedStore)


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


class DriftFigures(Collector):
    """The distances that the drift watch found last, which are those of the whole deployment in each server."""

    def __init__(self) -> None:
        """Create no distances."""
        self._found: Sequence[Found] = ()

    def set(self, found: Sequence[Found]) -> None:
        """Show these distances."""
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """Return the distances, and for each feature whether it has drifted."""
        distances, drifted = self.describe()
        alarms: dict[tuple[str, str], bool] = {}
        for found in self._found:
            distances.add_metric([found.branch, *_parts(found.feature), found.distance], found.value)
            key = found.branch, found.feature
            alarms[key] = alarms.get(key, False) or found.drifted
        for (branch, name), alarm in alarms.items():
            drifted.add_metric([branch, *_parts(name)], float(alarm))
        return distances, drifted

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        """Return the metrics without values."""
        labels = ["branch", "featureset", "feature"]
        return (
            GaugeMetricFamily(
                "caraway_drift_distance",
                "Distance of served features from their reference.",
                labels=[*labels, "distance"],
            ),
            GaugeMetricFamily("caraway_drift_drifted", "1 if a served feature has drifted, else 0.", labels=labels),
        )


DRIFT_FIGURES = DriftFigures()
REGISTRY.register(DRIFT_FIGURES)


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
        lambda store: DRIFT_FIGURES.set(store.found()),
    ),
)
