"""The alerts of features and of fields of datasets that have drifted."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from caraway.graph.specs import Graph, Metadata
from caraway.offline.monitoring.alerts.lasting import SentAlert
from caraway.offline.monitoring.drift.reports import ColumnDrift

NAME = "CarawayFeatureDrifted"
# The object of the object store that stores the alerts that were sent.
OBJECT = "drift/alerts.json"


def drifted(branch: str, graph: Graph, features: Iterable[ColumnDrift], now: datetime) -> list[SentAlert]:
    """Return the features of a branch that have drifted, as alerts that weren't sent yet.

    Args:
        branch: The branch.
        graph: Its definitions, which have the owners.
        features: How its features compare with their references.
        now: The time.
    """
    metadata = {spec.name: (spec.metadata, {f.name: f.metadata for f in spec.features}) for spec in graph.featuresets}
    alerts = []
    for found in features:
        if found.drifted:
            featureset, _, feature = found.column.partition(".")
            labels = {"branch": branch, "featureset": featureset, "feature": feature}
            of_set, of_features = metadata[featureset]
            alerts.append(drift_alert(labels, found.summary, of_features[feature], of_set, now))
    return alerts


def drift_alert(
    labels: Mapping[str, str], summary: str, metadata: Metadata, of_all: Metadata, now: datetime
) -> SentAlert:
    """Return the alert of a column that has drifted.

    Args:
        labels: The labels that name the column.
        summary: The distances that are alarms.
        metadata: The owner and the description of the column.
        of_all: Those of its featureset or dataset, which count for a column without its own.
        now: The time.
    """
    return SentAlert(
        labels={**labels, "owner": metadata.owner or of_all.owner, "severity": "warning"},
        annotations={"summary": summary, "description": metadata.description or of_all.description},
        began_at=now,
    )
