"""Alerts follow the status of expectations: one for a change, and again until somebody has taken it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from caraway.client import arguments
from caraway.compute.expectations.counts import Counts
from caraway.graph.plan.planner import plan_graph
from caraway.offline.monitoring.alerts.alert import AGAIN
from caraway.offline.monitoring.alerts.webhook import ATTEMPTS, Webhook
from caraway.offline.monitoring.quality.expectation_alerts import ExpectationAlerts
from caraway.offline.monitoring.quality.store import Findings, QualityStore
from caraway.state.database import connect
from tests.integration.quality.stalls import OWNER, definitions

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
(CHECK,) = (c for c in plan_graph(arguments.gather(definitions(1), ())).checks if c.dataset.name == "Dear")


class Scene:
    """A store whose expectation is watched, and a webhook that may be away."""

    def __init__(self, store: QualityStore) -> None:
        self.store, self.offset, self.now, self.is_away = store, 0, NOW, False
        self.requests = 0
        self.told: list[dict[str, Any]] = []
        self.watch = self.watched()

    def watched(self) -> ExpectationAlerts:
        """Return a watch as a process has that was started anew."""
        transport = httpx2.MockTransport(self.take)
        webhook = Webhook("http://alerts", transport=transport, pause_s=0.0, clock=lambda: self.now)
        return ExpectationAlerts(self.store, webhook, clock=lambda: self.now.timestamp())

    def take(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if self.is_away:
            return httpx2.Response(503)
        self.told += json.loads(request.content)
        return httpx2.Response(200)

    def rows(self, evaluated: int, failed: int) -> None:
        """Count rows of a window, an hour after the one before."""
        counts, at = Counts(evaluated, failed), NOW + timedelta(hours=self.offset)
        since = {0: self.offset} if self.offset else {}
        self.offset += 1
        found = Findings(
            check_id=CHECK.check_id,
            since=since,
            until={0: self.offset},
            windows={(0, at): counts},
            totals={0: counts},
            samples=[],
        )
        assert self.store.add(found)

    def look(self) -> list[dict[str, Any]]:
        """Look once, and return the alerts that were taken."""
        self.told.clear()
        self.watch.look({CHECK.check_id: CHECK}, {CHECK.check_id: ["main", "copy"]})
        return list(self.told)


@pytest.fixture
def scene(postgres: str) -> Iterator[Scene]:
    engine = connect(postgres)
    yield Scene(QualityStore(engine))
    engine.dispose()


def test_a_change_is_told_once(scene: Scene) -> None:
    assert scene.look() == []
    scene.rows(10, 0)
    assert scene.look() == []
    scene.rows(10, 1)
    first, second = scene.look()
    assert [alert["labels"]["branch"] for alert in (first, second)] == ["copy", "main"]
    assert first["labels"]["owner"] == OWNER
    assert first["annotations"]["summary"].endswith("holds for 90.00% of 10 rows, expected 100.00%")
    assert first["startsAt"] == "2026-05-01T12:00:00Z"
    assert scene.look() == []
    # A process that was started anew knows what was told.
    scene.watch = scene.watched()
    assert scene.look() == []
    scene.now += timedelta(minutes=30)
    scene.rows(10, 0)
    ended, _ = scene.look()
    assert (ended["startsAt"], ended["endsAt"]) == ("2026-05-01T12:00:00Z", "2026-05-01T12:30:00Z")
    assert ended["labels"] == first["labels"]
    assert scene.look() == []


def test_an_alert_that_is_not_taken_is_sent_again(scene: Scene) -> None:
    scene.rows(10, 1)
    scene.is_away = True
    assert scene.look() == []
    assert scene.requests == ATTEMPTS
    scene.is_away = False
    assert len(scene.look()) == 2
    # One that lasts is sent again now and then.
    scene.now += AGAIN / 2
    assert scene.look() == []
    scene.now += AGAIN
    assert len(scene.look()) == 2
