"""Alerts follow drift: one when a feature has drifted, again while it lasts, and one when it has ended."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from caraway.compute.profiles.comparing import Shift
from caraway.compute.profiles.distances import Distance
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dtypes.types import FLOAT
from caraway.graph.specs import FeaturesetSpec, FeatureSpec, Graph, Metadata
from caraway.offline.monitoring.alerts.alert import AGAIN
from caraway.offline.monitoring.alerts.lasting import LastingAlerts, SentAlert
from caraway.offline.monitoring.alerts.webhook import ATTEMPTS, Webhook
from caraway.offline.monitoring.drift.alerting import NAME, OBJECT, drifted
from caraway.offline.monitoring.drift.reports import Against, ColumnDrift

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
GRAPH = Graph(
    featuresets=(
        FeaturesetSpec(
            name="User",
            features=(
                FeatureSpec(name="age", dtype=FLOAT, metadata=Metadata(owner="age@example.com", description="years")),
                FeatureSpec(name="debt", dtype=FLOAT),
            ),
            extractors=(),
            metadata=Metadata(owner="people@example.com"),
        ),
    )
)


def feature(name: str, *distances: Distance, drifted: bool = True) -> ColumnDrift:
    """Return a feature some of whose distances may have drifted."""
    shifts = [
        Shift(column=name, distance=each, value=0.41, at_least=0.3, threshold=0.2, drifted=drifted, note="")
        for each in distances
    ]
    quiet = Shift(
        column=name, distance=Distance.MISSING, value=0.0, at_least=0.0, threshold=0.05, drifted=False, note=""
    )
    return ColumnDrift(
        column=name,
        rows=1_200,
        against=Against.TRAINING,
        reference_rows=5_000,
        set_at=NOW,
        shifts=(*shifts, quiet),
    )


class Scene:
    """A watch that may be started anew, and a webhook that may be away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.is_away = folder, NOW, False
        self.requests = 0
        self.taken: list[dict[str, Any]] = []
        self.alerts = self.started()

    def started(self) -> LastingAlerts:
        """Return the alerts as a process has them that was started anew."""
        webhook = Webhook(
            "http://alerts", transport=httpx2.MockTransport(self.take), pause_s=0.0, clock=lambda: self.now
        )
        return LastingAlerts(NAME, OBJECT, ObjectFolder(str(self.folder)), webhook, clock=lambda: self.now)

    def take(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        if self.is_away:
            return httpx2.Response(503)
        self.taken += json.loads(request.content)
        return httpx2.Response(200)

    def found(self, *features: ColumnDrift) -> list[SentAlert]:
        return drifted("main", GRAPH, features, self.now)

    def look(self, *features: ColumnDrift) -> list[dict[str, Any]]:
        """Look once, and return the alerts that were taken."""
        self.taken.clear()
        self.alerts.look(self.found(*features))
        return list(self.taken)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_alert_has_the_owner_and_the_distances(scene: Scene) -> None:
    (alert,) = scene.look(feature("User.age", Distance.PSI, Distance.KS), feature("User.debt"))
    assert alert["labels"] == {
        "alertname": "CarawayFeatureDrifted",
        "branch": "main",
        "featureset": "User",
        "feature": "age",
        "owner": "age@example.com",
        "severity": "warning",
    }
    assert alert["annotations"] == {
        "summary": "User.age has drifted: psi 0.41 (an alarm from 0.2), ks 0.41 (an alarm from 0.2); 1,200 rows, "
        "compared with training",
        "description": "years",
    }
    (other,) = scene.look(feature("User.age", Distance.KS), feature("User.debt", Distance.KS))
    assert (other["labels"]["feature"], other["labels"]["owner"]) == ("debt", "people@example.com")


def test_a_distance_without_an_alarm_is_none(scene: Scene) -> None:
    assert scene.look(feature("User.age", Distance.PSI, drifted=False)) == []
    assert not (scene.folder / OBJECT).exists()


def test_an_alert_is_sent_once_and_resolved_once(scene: Scene) -> None:
    (first,) = scene.look(feature("User.age", Distance.PSI))
    assert first["startsAt"] == "2026-05-01T12:00:00Z"
    scene.now += timedelta(minutes=30)
    assert scene.look(feature("User.age", Distance.PSI, Distance.KS)) == []
    # A process that was started anew knows what was sent.
    scene.alerts = scene.started()
    assert scene.look(feature("User.age", Distance.PSI)) == []
    (ended,) = scene.look()
    assert (ended["startsAt"], ended["endsAt"]) == ("2026-05-01T12:00:00Z", "2026-05-01T12:30:00Z")
    assert ended["labels"] == first["labels"]
    assert scene.look() == []
    assert json.loads((scene.folder / OBJECT).read_bytes()) == []
    # A later drift is another alert.
    scene.now += timedelta(minutes=30)
    (again,) = scene.look(feature("User.age", Distance.PSI))
    assert again["startsAt"] == "2026-05-01T13:00:00Z"


def test_an_alert_that_lasts_is_sent_again(scene: Scene) -> None:
    scene.look(feature("User.age", Distance.PSI))
    scene.now += AGAIN / 2
    assert scene.look(feature("User.age", Distance.PSI)) == []
    scene.now += AGAIN
    (again,) = scene.look(feature("User.age", Distance.KS))
    assert again["startsAt"] == "2026-05-01T12:00:00Z"
    assert "ks" in again["annotations"]["summary"]
    # Also if nothing was served, so that nothing was compared.
    scene.now += AGAIN
    scene.taken.clear()
    scene.alerts.send()
    assert len(scene.taken) == 1


def test_an_alert_that_is_not_taken_is_sent_again(scene: Scene) -> None:
    scene.is_away = True
    assert scene.look(feature("User.age", Distance.PSI)) == []
    assert scene.requests == ATTEMPTS
    scene.is_away, scene.alerts = False, scene.started()
    scene.alerts.send()
    assert [alert["labels"]["feature"] for alert in scene.taken] == ["age"]
    # The same with its end.
    scene.is_away = True
    scene.look()
    scene.is_away, scene.now = False, scene.now + timedelta(hours=1)
    scene.taken.clear()
    scene.alerts.send()
    assert [alert["endsAt"] for alert in scene.taken] == ["2026-05-01T12:00:00Z"]


def test_a_feature_that_drifts_again_before_its_end_was_taken_lasts(scene: Scene) -> None:
    scene.look(feature("User.age", Distance.PSI))
    scene.is_away = True
    scene.now += timedelta(hours=1)
    scene.look()
    scene.is_away = False
    (alert,) = scene.look(feature("User.age", Distance.PSI))
    assert alert["startsAt"] == "2026-05-01T12:00:00Z"
    assert alert["endsAt"] > "2026-05-02"
