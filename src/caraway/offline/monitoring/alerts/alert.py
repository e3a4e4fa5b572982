"""Alerts as plain data, and their form in version 2 of Alertmanager's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

# Alertmanager regards an alert as resolved after this time, unless the alert is sent again.
LASTS = timedelta(days=1)
# An alert is sent again after this time if its condition lasts, so that it isn't regarded as resolved.
AGAIN = timedelta(hours=6)
# Longer labels and annotations are cut off after this many characters.
MAX_TEXT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition that somebody should know of.

    Attributes:
        name: The kind of condition, such as CarawayExpectationViolated.
        labels: Its identity, such as branch and dataset. `owner` is the person whom it concerns.
        annotations: Its explanation, such as `summary`.
        began_at: When it began.
        ended_at: When it ended; None as long as it lasts.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    began_at: datetime
    ended_at: datetime | None = None

    @property
    def is_resolved(self) -> bool:
        """True if the condition has ended."""
        return self.ended_at is not None


def is_due(sent_at: datetime | None, now: datetime, *, lasts: bool) -> bool:
    """Return whether an alert has to be sent.

    Args:
        sent_at: When it was taken last since it has begun or ended; None if it wasn't yet.
        now: The time. If it lies before `sent_at`, the clock was set back, and the alert is due.
        lasts: True if it hasn't ended.
    """
    return sent_at is None or (lasts and not timedelta(0) <= now - sent_at < AGAIN)


def as_request(alerts: Sequence[Alert], now: datetime) -> list[dict[str, Any]]:
    """Return the body of a request to Alertmanager's `POST /api/v2/alerts`."""
    return [
        {
            "labels": {"alertname": alert.name, **{name: _text(value) for name, value in alert.labels.items()}},
            "annotations": {name: _text(value) for name, value in alert.annotations.items()},
            "startsAt": _time(alert.began_at),
            "endsAt": _time(now + LASTS if alert.ended_at is None else alert.ended_at),
        }
        for alert in alerts
    ]


def _text(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
