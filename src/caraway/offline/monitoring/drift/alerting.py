"""The alerts of features that have drifted."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from caraway.graph.specs import Graph, Metadata
from caraway.offline.monitoring.alerts.lasting import SentAlert
from caraway.offline.monitoring.drift.reports import ColumnDrift

NAME = "CarawayFeatureDrifted"
# The object of the alerts that were sent.
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
    return [_begun(branch, one, *_of_feature(metadata, one.column), now) for one in features if one.drifted]


def _of_feature(metadata: Mapping[str, tuple[Metadata, Mapping[str, Metadata]]], full_name: str) -> tuple[str, str]:
    """Return the owner and the description of a feature; a feature without an owner has that of its featureset."""
    featureset, _, feature = full_name.partition(".")
    of_set, of_features = metadata[featureset]
    return of_features[feature].owner or of_set.owner, of_features[feature].description or of_set.description


def _begun(branch: str, found: ColumnDrift, owner: str, description: str, now: datetime) -> SentAlert:
    featureset, _, feature = found.column.partition(".")
    return SentAlert(
        labels={
            "branch": branch,
            "featureset": featureset,
            "feature": feature,
            "owner": owner,
            "severity": "warning",
        },
        annotations={
            "summary": found.summary,
            "description": description,
        },
        began_at=now,
    )
