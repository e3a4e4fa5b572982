"""Drift of features that a real server served: profiles of its log, compared with a training set."""

import json
from typing import Any

import httpx2
import numpy as np
import pandas as pd
from sqlalchemy import select

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.offline.monitoring.alerts.lasting import LastingAlerts
from caraway.offline.monitoring.alerts.webhook import Webhook
from caraway.offline.monitoring.drift.alerting import NAME, OBJECT
from caraway.offline.monitoring.drift.watch import DriftWatch, Parts
from caraway.process.secrets.keyring import open_keyring
from caraway.state.drift import DriftStore
from caraway.state.tables import drift_profiles
from tests.integration.server.server_process import eventually
from tests.integration.skew.conftest import Shop

USERS = 300


class Receiver:
    """Takes alerts in the form of Alertmanager."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []

    def take(self, request: httpx2.Request) -> httpx2.Response:
        self.taken += json.loads(request.content)
        return httpx2.Response(200)

    def webhook(self) -> Webhook:
        return Webhook("http://alerts", transport=httpx2.MockTransport(self.take), pause_s=0.0)


def watch(shop: Shop, receiver: Receiver) -> DriftWatch:
    """Return a watch as a process has that was started anew."""
    keyring = open_keyring(shop.settings.key_file)
    alerts = LastingAlerts(NAME, OBJECT, ObjectFolder(shop.settings.objects_url), receiver.webhook())
    return DriftWatch(shop.settings, Parts(shop.database, ErasedKeys(keyring.mac_keys), alerts))


def test_served_features_drift_from_their_training_set_and_not_from_themselves(shop: Shop) -> None:
    receiver = Receiver()
    shop.commit()
    shop.pay_often(3, rows=2 * USERS, users=USERS, apart_s=1.0)
    served = shop.ask([shop.till.total, shop.till.city], [*range(USERS)])
    eventually(lambda: shop.rows() == USERS, shop.archive.said)
    # A watch that is replaced by another one goes on where the first one was.
    assert watch(shop, receiver).run_once()
    assert not watch(shop, receiver).run_once()
    answer = shop.client.drift(hours=2)
    assert {found["feature"]: (found["rows"], found["reference"]) for found in answer["features"]} == {
        "Till.city": (USERS, None),
        "Till.total": (USERS, None),
    }
    assert shop.client.set_reference(served) == {"features": ["Till.city", "Till.total"], "ignored": []}
    same = shop.client.drift(hours=2)["features"]
    assert [(found["reference"], found["drifted"]) for found in same] == [("training", False)] * 2
    chance = np.random.default_rng(1)
    other = pd.DataFrame({"Till.total": chance.normal(1e6, 1, 1_000), "label": 1})
    assert shop.client.set_reference(other) == {"features": ["Till.total"], "ignored": ["label"]}
    found = {one["feature"]: one for one in shop.client.drift("Till", hours=2, reference="training")["features"]}
    assert not found["Till.city"]["drifted"]
    assert {one["distance"] for one in found["Till.total"]["distances"] if one["drifted"]} >= {"psi", "ks"}
    # The next pass compares for the metrics.
    shop.ask([shop.till.total], [1])
    eventually(lambda: shop.rows() == USERS + 1, shop.archive.said)
    assert watch(shop, receiver).run_once()
    drifted = {(one.column, one.distance) for one in DriftStore(shop.database).profiles.found() if one.drifted}
    assert ("Till.total", "ks") in drifted
    # The owner is told once, also if another process goes on.
    (alert,) = receiver.taken
    assert alert["labels"]["alertname"] == "CarawayFeatureDrifted"
    assert (alert["labels"]["featureset"], alert["labels"]["feature"]) == ("Till", "total")
    assert alert["labels"]["owner"]
    assert "ks" in alert["annotations"]["summary"]
    assert not watch(shop, receiver).run_once()
    assert len(receiver.taken) == 1
    # With a reference like what was served, the next pass finds that it has ended.
    shop.client.set_reference(served)
    shop.ask([shop.till.total], [2])
    eventually(lambda: shop.rows() == USERS + 2, shop.archive.said)
    assert watch(shop, receiver).run_once()
    _, ended = receiver.taken
    assert ended["labels"] == alert["labels"]
    assert ended["startsAt"] == alert["startsAt"]
    assert ended["endsAt"] < alert["endsAt"]
    with shop.database.connect() as connection:
        assert connection.execute(select(drift_profiles.c.column).distinct()).scalars().all()
