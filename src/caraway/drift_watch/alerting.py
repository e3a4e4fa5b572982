"""The alerts of drift: a feature that has drifted is told once, again as long as it lasts, and once when it has ended.

The alerts that were sent are kept as an object of the object store, since the process of the watch ends when nothing is
served, and another server may run the next one. Only the holder of the watch's lease reads and writes it.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from caraway.alerts.alert import Alert, is_due
from caraway.alerts.webhook import Webhook
from caraway.graph.specs import Graph, Metadata
from caraway.objects.folder import ObjectFolder
from caraway.served.drift_reports import FeatureDrift

NAME = "CarawayFeatureDrifted"
# The folder and the object of the alerts.
FOLDER = "drift"
OBJECT = f"{FOLDER}/alerts.json"


class SentAlert(Struct, frozen=True, kw_only=True):
    """An alert that was sent, or will be.

    Attributes:
        labels: Its identity: branch, featureset, feature and so on.
        annotations: Its explanation.
        began_at: When the drift was found.
        ended_at: When it was found to have ended; None as long as it lasts.
        sent_at: When it was taken last since it has begun or ended; None if it wasn't yet.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    began_at: datetime
    ended_at: datetime | None = None
    sent_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The branch, and the full name of the feature."""
        return self.labels["branch"], f"{self.labels['featureset']}.{self.labels['feature']}"


_DECODER = msgspec.json.Decoder(list[SentAlert])


class DriftAlerts:
    """Sends alerts of features that have drifted. Not thread safe.

    An alert is sent until it is taken, also by a process that was started anew, and then once for a change. If the
    process is killed just after it was taken, it is sent once more.
    """

    def __init__(
        self,
        objects: ObjectFolder,
        webhook: Webhook,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            objects: The object store.
            webhook: The receiver.
            clock: Returns the time.
        """
        self._objects = objects
        self._webhook = webhook
        self._clock = clock
        self._known: dict[tuple[str, str], SentAlert] | None = None

    def look(self, found: Iterable[SentAlert]) -> None:
        """Send the alerts that are due.

        Args:
            found: The features of all branches that have drifted now, as alerts that weren't sent yet; `drifted` makes
                them.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        now = self._clock()
        known = self._read() if self._known is None else self._known
        self._keep(known, _changed(known, {alert.key: alert for alert in found}, now))
        self.send()

    def send(self) -> None:
        """Send the alerts that are due, of those that are known: what wasn't taken, and what lasts.

        Raises `UnavailableError` if the object store doesn't answer.
        """
        now = self._clock()
        known = self._read() if self._known is None else self._known
        due = [one for one in known.values() if is_due(one.sent_at, now, lasts=one.ended_at is None)]
        self._known = known
        if not due or not self._webhook.send([_alert(one) for one in due]):
            return
        sent = known | {one.key: replace(one, sent_at=now) for one in due}
        self._keep(known, {key: one for key, one in sent.items() if one.ended_at is None})

    def _read(self) -> dict[tuple[str, str], SentAlert]:
        if not any(stored.name == OBJECT for stored in self._objects.stored(FOLDER)):
            return {}
        return {alert.key: alert for alert in _DECODER.decode(self._objects.read(OBJECT))}

    def _keep(self, known: Mapping[tuple[str, str], SentAlert], changed: dict[tuple[str, str], SentAlert]) -> None:
        if changed != known:
            self._objects.write(OBJECT, msgspec.json.encode(list(changed.values())))
        self._known = changed


def _changed(
    known: Mapping[tuple[str, str], SentAlert], found: Mapping[tuple[str, str], SentAlert], now: datetime
) -> dict[tuple[str, str], SentAlert]:
    """Return the known alerts with those that have begun or ended."""
    changed: dict[tuple[str, str], SentAlert] = {}
    for key, alert in known.items():
        if key in found:
            lasting = replace(alert, labels=found[key].labels, annotations=found[key].annotations)
            # An end that wasn't taken yet is void if the feature drifts again.
            changed[key] = lasting if alert.ended_at is None else replace(lasting, ended_at=None, sent_at=None)
        else:
            changed[key] = alert if alert.ended_at is not None else replace(alert, ended_at=now, sent_at=None)
    return changed | {key: alert for key, alert in found.items() if key not in known}


def _alert(sent: SentAlert) -> Alert:
    return Alert(
        name=NAME,
        labels=sent.labels,
        annotations=sent.annotations,
        began_at=sent.began_at,
        ended_at=sent.ended_at,
    )


def drifted(branch: str, graph: Graph, features: Iterable[FeatureDrift], now: datetime) -> list[SentAlert]:
    """Return the features of a branch that have drifted, as alerts that weren't sent yet.

    Args:
        branch: The branch.
        graph: Its definitions, which have the owners.
        features: How its features compare with their references.
        now: The time.
    """
    metadata = {spec.name: (spec.metadata, {f.name: f.metadata for f in spec.features}) for spec in graph.featuresets}
    return [
        _begun(branch, one, *_of_feature(metadata, one.feature), now)
        for one in features
        if any(shift.drifted for shift in one.shifts)
    ]


def _of_feature(metadata: Mapping[str, tuple[Metadata, Mapping[str, Metadata]]], full_name: str) -> tuple[str, str]:
    """Return the owner and the description of a feature; a feature without an owner has that of its featureset."""
    featureset, _, feature = full_name.partition(".")
    of_set, of_features = metadata[featureset]
    return of_features[feature].owner or of_set.owner, of_features[feature].description or of_set.description


def _begun(branch: str, found: FeatureDrift, owner: str, description: str, now: datetime) -> SentAlert:
    featureset, _, feature = found.feature.partition(".")
    distances = ", ".join(
        f"{shift.distance} {shift.value:.3g} (an alarm from {shift.threshold:g})"
        for shift in found.shifts
        if shift.drifted
    )
    reference = found.against or "no reference"
    return SentAlert(
        labels={
            "branch": branch,
            "featureset": featureset,
            "feature": feature,
            "owner": owner,
            "severity": "warning",
        },
        annotations={
            "summary": f"{found.feature} has drifted: {distances}; {found.rows:,} rows, compared with {reference}",
            "description": description,
        },
        began_at=now,
    )
