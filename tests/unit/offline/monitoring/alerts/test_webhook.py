"""Alerts are logged, and taken by a webhook as Alertmanager takes them."""

import json
from datetime import UTC, datetime, timedelta

import httpx2
import structlog

from caraway.offline.monitoring.alerts.alert import Alert
from caraway.offline.monitoring.alerts.webhook import AT_ONCE, ATTEMPTS, Webhook

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ALERT = Alert(
    name="CarawayExpectationViolated",
    labels={"dataset": "Payments", "owner": "ada@example.com"},
    annotations={"summary": "97% of rows"},
    began_at=NOW - timedelta(minutes=1),
)


class Receiver:
    """Answers requests with given codes, and at the end with 200."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        code = self.codes.pop(0) if self.codes else 200
        return httpx2.Response(code, headers={"location": "http://169.254.169.254/"} if code == 302 else {})

    def webhook(self, url: str | None = "http://user:secret@alerts/api/v2/alerts") -> Webhook:
        return Webhook(url, transport=httpx2.MockTransport(self), pause_s=0.0, clock=lambda: NOW)


def test_an_alert_is_sent_in_the_form_of_alertmanager() -> None:
    receiver = Receiver()
    with structlog.testing.capture_logs() as logs:
        assert receiver.webhook().send([ALERT])
    (request,) = receiver.requests
    assert json.loads(request.content) == [
        {
            "labels": {"alertname": ALERT.name, "dataset": "Payments", "owner": "ada@example.com"},
            "annotations": {"summary": "97% of rows"},
            "startsAt": "2026-05-01T11:59:00Z",
            "endsAt": "2026-05-02T12:00:00Z",
        }
    ]
    (line,) = logs
    assert (line["event"], line["log_level"], line["owner"]) == ("alert", "warning", "ada@example.com")


def test_an_alert_that_has_ended_says_when() -> None:
    receiver = Receiver()
    ended = Alert(name="A", labels={}, annotations={}, began_at=ALERT.began_at, ended_at=NOW)
    with structlog.testing.capture_logs() as logs:
        assert receiver.webhook().send([ended])
    assert json.loads(receiver.requests[0].content)[0]["endsAt"] == "2026-05-01T12:00:00Z"
    assert logs[0]["event"] == "alert resolved"


def test_a_refusal_is_tried_again_a_few_times() -> None:
    receiver = Receiver(503, 500)
    assert receiver.webhook().send([ALERT])
    assert len(receiver.requests) == 3
    down = Receiver(*[500] * 99)
    with structlog.testing.capture_logs() as logs:
        assert not down.webhook().send([ALERT])
    assert len(down.requests) == ATTEMPTS
    # An alert that isn't taken is sent again later, so it isn't logged as sent; nor is the password of the address.
    assert [line["event"] for line in logs] == ["alerts aren't taken by alerts.webhook"]
    assert "secret" not in str(logs)


def test_no_other_address_is_asked() -> None:
    receiver = Receiver(*[302] * 99)
    assert not receiver.webhook().send([ALERT])
    assert {request.url.host for request in receiver.requests} == {"alerts"}


def test_without_a_webhook_alerts_are_logged() -> None:
    receiver = Receiver()
    with structlog.testing.capture_logs() as logs:
        assert receiver.webhook(None).send([ALERT])
    assert receiver.requests == []
    assert [line["alert"] for line in logs] == [ALERT.name]


def test_a_request_has_a_bounded_number_of_alerts() -> None:
    receiver = Receiver()
    assert receiver.webhook().send([ALERT] * (AT_ONCE + 1))
    assert [len(json.loads(request.content)) for request in receiver.requests] == [AT_ONCE, 1]
