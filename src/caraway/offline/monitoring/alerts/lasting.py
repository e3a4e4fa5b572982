"""Alerts that last: each is told once when it begins, again as long as it lasts, and once when it has ended.

The alerts that were sent are kept as an object of the object store, since the process of a watch ends when there is
nothing to look at, and another server may run the next one. Only the holder of the watch's lease reads and writes it.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.offline.monitoring.alerts.alert import Alert, is_due
from caraway.offline.monitoring.alerts.webhook import Webhook

# The labels that aren't part of an alert's identity: a new owner doesn't make it another alert.
_APART = ("owner", "severity")
Key = tuple[str, ...]


class SentAlert(Struct, frozen=True, kw_only=True):
    """An alert that was sent, or will be.

    Attributes:
        labels: Its identity, such as branch, featureset and feature, and its owner and severity.
        annotations: Its explanation.
        began_at: When the cause was found.
        ended_at: When it was found to have ended; None as long as it lasts.
        sent_at: When it was taken last since it has begun or ended; None if it wasn't yet.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    began_at: datetime
    ended_at: datetime | None = None
    sent_at: datetime | None = None

    @property
    def key(self) -> Key:
        """The labels that are its identity, in the order of their names."""
        return tuple(text for name, text in sorted(self.labels.items()) if name not in _APART)


_DECODER = msgspec.json.Decoder(list[SentAlert])


class LastingAlerts:
    """Sends alerts of one name. Not thread safe.

    An alert is sent until it is taken, also by a process that was started anew, and then once for a change. If the
    process is killed just after it was taken, it is sent once more.
    """

    def __init__(
        self,
        name: str,
        stored_as: str,
        objects: ObjectFolder,
        webhook: Webhook,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            name: The name of the alerts.
            stored_as: The object of the alerts that were sent, "folder/name".
            objects: The object store.
            webhook: The receiver.
            clock: Returns the time.
        """
        self._name = name
        self._object = stored_as
        self._objects = objects
        self._webhook = webhook
        self._clock = clock
        self._known: dict[Key, SentAlert] | None = None

    def look(self, found: Iterable[SentAlert]) -> None:
        """Send the alerts that are due.

        Args:
            found: All that there is to tell now, as alerts that weren't sent yet.

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
        if not due or not self._webhook.send([_alert(self._name, one) for one in due]):
            return
        sent = known | {one.key: replace(one, sent_at=now) for one in due}
        self._keep(known, {key: one for key, one in sent.items() if one.ended_at is None})

    def _read(self) -> dict[Key, SentAlert]:
        folder = self._object.rpartition("/")[0]
        if not any(stored.name == self._object for stored in self._objects.stored(folder)):
            return {}
        return {alert.key: alert for alert in _DECODER.decode(self._objects.read(self._object))}

    def _keep(self, known: Mapping[Key, SentAlert], changed: dict[Key, SentAlert]) -> None:
        if changed != known:
            self._objects.write(self._object, msgspec.json.encode(list(changed.values())))
        self._known = changed


def _changed(known: Mapping[Key, SentAlert], found: Mapping[Key, SentAlert], now: datetime) -> dict[Key, SentAlert]:
    """Return the known alerts with those that have begun or ended."""
    changed: dict[Key, SentAlert] = {}
    for key, alert in known.items():
        if key in found:
            lasting = replace(alert, labels=found[key].labels, annotations=found[key].annotations)
            # If the alert had ended, the webhook hasn't accepted its end yet, or it wouldn't be known any more. The
            # same alert is found again, so the end is void.
            changed[key] = lasting if alert.ended_at is None else replace(lasting, ended_at=None, sent_at=None)
        else:
            changed[key] = alert if alert.ended_at is not None else replace(alert, ended_at=now, sent_at=None)
    return changed | {key: alert for key, alert in found.items() if key not in known}


def _alert(name: str, sent: SentAlert) -> Alert:
    return Alert(
        name=name,
        labels=sent.labels,
        annotations=sent.annotations,
        began_at=sent.began_at,
        ended_at=sent.ended_at,
    )
