"""Drift of features that a real server served: profiles of its log, compared with a training set."""

import numpy as np
import pandas as pd
from sqlalchemy import select

from caraway.drift_watch.watch import DriftWatch, Parts
from caraway.erasure.keys import ErasedKeys
from caraway.secrets.keyring import open_keyring
from caraway.served.drift import DriftStore
from caraway.state.tables import drift_profiles
from tests.integration.server.server_process import eventually
from tests.integration.skew.conftest import Shop

USERS = 300


def watch(shop: Shop) -> DriftWatch:
    keyring = open_keyring(shop.settings.key_file)
    return DriftWatch(shop.settings, Parts(shop.database, ErasedKeys(keyring.mac_keys)))


def test_served_features_drift_from_their_training_set_and_not_from_themselves(shop: Shop) -> None:
    shop.commit()
    shop.pay_often(3, rows=2 * USERS, users=USERS, apart_s=1.0)
    served = shop.ask([shop.till.total, shop.till.city], [*range(USERS)])
    eventually(lambda: shop.rows() == USERS, shop.archive.said)
    # A watch that is replaced by another one goes on where the first one was.
    assert watch(shop).run_once()
    assert not watch(shop).run_once()
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
    assert watch(shop).run_once()
    drifted = {(one.feature, one.distance) for one in DriftStore(shop.database).found() if one.drifted}
    assert ("Till.total", "ks") in drifted
    with shop.database.connect() as connection:
        assert connection.execute(select(drift_profiles.c.feature).distinct()).scalars().all()
