"""Served features are computed again: to the bit if all is well, and otherwise with the reason."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient

from caraway.errors import UnavailableError
from caraway.state.findings import Finding
from caraway.state.skew import SkewStore
from tests.integration.server.server_process import eventually
from tests.integration.skew.conftest import Shop

SAME, LATE, LAGS, VARIES = Finding.SAME, Finding.LATE_DATA, Finding.NOT_INDEXED, Finding.NON_DETERMINISTIC
USERS = [0, 1, 2, 3, 4, 99]
SURE = ["user", "city", "age", "n", "total", "mean", "spread", "last", "rich", "scaled"]


def test_ordinary_rows_are_the_same_to_the_bit_and_counted_once(shop: Shop) -> None:
    shop.commit()
    asked = 0
    # Payments of the second round are newer than all answers of the first one, since they would come late otherwise.
    for seed, apart_s in ((3, 7.0), (11, 0.0)):
        shop.pay_often(seed, apart_s=apart_s)
        shop.ask([getattr(shop.till, name) for name in SURE], USERS)
        # A caller may choose the times, and give features that are computed otherwise.
        past = [(datetime.now(UTC) - timedelta(seconds=40 * n)).isoformat() for n in range(len(USERS))]
        body = {"inputs": ["Till.user", "Till.n"], "outputs": ["Till.scaled", "Till.total", "Till.n"], "log": True}
        data = {"Till.user": USERS, "Till.n": [5] * len(USERS)}
        answer = shop.http.post("/query", json={**body, "data": data, "timestamps": past})
        assert answer.status_code == 200, answer.text
        asked += 2 * len(USERS)
    found = shop.compared(asked)
    assert found["n"] == {SAME: asked}
    assert found["scaled"] == {SAME: asked}
    assert {name: counts for name, counts in found.items() if set(counts) != {SAME}} == {}
    assert set(found) == set(SURE)
    assert shop.client.skew("Till")["samples"] == []
    # Nothing is counted again, by this process or by another one.
    assert shop.compared(asked) == found


def test_each_reason_is_told(shop: Shop) -> None:
    shop.commit()
    shop.pay_often(5)
    till = shop.till
    shop.ask([till.n, till.total, till.city], [0])
    then = datetime.now(UTC) - timedelta(seconds=30)
    shop.pay(0, 7.5, then)
    # An extractor that draws numbers, and one that reads the clock, are found even if only a few rows are there.
    shop.ask([till.n, till.chance, till.seconds], [0, 2])
    # The planted answer lacks a payment that was accepted just before, as that of an index that lags would.
    before = int(shop.ask([till.n], [3])["Till.n"][0])
    accepted = shop.pay(3, 1.0, datetime.now(UTC) - timedelta(minutes=1))
    shop.plant(accepted, {"Till.user": 3}, {"Till.n": before, "Till.city": "c3"})
    # Nothing explains this one.
    shop.plant(datetime.now(UTC), {"Till.user": 4}, {"Till.mean": 12345.0, "Till.city": "c4"})
    found = shop.compared(6)
    assert found == {
        "n": {SAME: 2, LATE: 2, LAGS: 1},
        "total": {LATE: 1},
        "city": {SAME: 3},
        "chance": {VARIES: 2},
        "seconds": {VARIES: 2},
        "mean": {Finding.UNKNOWN: 1},
    }
    answer = shop.client.skew()
    assert (answer["branch"], {f["feature"]: f["reasons"] for f in answer["features"]}["Till.n"]) == (
        shop.branch,
        {"late data": 2, "not yet indexed": 1},
    )
    mean = next(f for f in answer["features"] if f["feature"] == "Till.mean")
    assert (mean["checked"], mean["mismatched"], mean["unchecked"], mean["served_now"]) == (1, 1, {}, True)
    (sample,) = shop.client.skew("Till.mean")["samples"]
    assert (sample["served"], sample["reason"]) == ("12345.0", "unknown")
    assert float(sample["recomputed"]) == pytest.approx(shop.ask([till.mean], [4])["Till.mean"][0])
    assert {f["feature"] for f in shop.client.skew("Till", samples=0)["features"]} == {f"Till.{name}" for name in found}
    assert shop.http.get("/skew", params={"feature": "Till.nothing"}).status_code == 404


def test_values_that_can_t_be_compared_are_counted_apart(shop: Shop) -> None:
    shop.commit()
    shop.pay_often(3, rows=30_000)
    shop.ask([shop.till.city, shop.till.name, shop.till.n, shop.till.scaled], USERS)
    # The row of a user that is no number can't be computed, and others of its query can.
    shop.plant(datetime.now(UTC), {"Till.user": "nobody"}, {"Till.city": "c1"})
    shop.plant(datetime.now(UTC), {"Till.user": 1}, {"Till.city": "c1"})
    small = shop.settings.skew.model_copy(update={"memory_mb": 1})
    shop.settings = shop.settings.model_copy(update={"skew": small})
    found = shop.compared(len(USERS) + 2)
    assert found == {
        "city": {SAME: len(USERS) + 1, Finding.FAILED: 1},
        "name": {Finding.NO_OFFLINE_INDEX: len(USERS)},
        "n": {Finding.TOO_MUCH_HISTORY: len(USERS)},
        "scaled": {Finding.TOO_MUCH_HISTORY: len(USERS)},
    }
    (city,) = shop.client.skew("Till.city")["features"]
    assert (city["checked"], city["mismatched"], city["unchecked"]) == (7, 0, {"recomputation failed": 1})
    (sample,) = shop.client.skew()["samples"]
    assert "nobody" in sample["recomputed"]


# Rows of an erased key are removed of all branches that have the dataset, so these tests have users of their own.
@pytest.mark.full(reason="half a minute; the test below erases a key, too")
def test_samples_of_erased_keys_go_and_none_comes_later(shop: Shop) -> None:
    payers = shop.commit()[1]
    shop.pay_often(9, first_user=100)
    for user in (102, 103):
        shop.plant(datetime.now(UTC), {"Till.user": user}, {"Till.city": "nowhere"})
    assert shop.compared(2)["city"] == {Finding.UNKNOWN: 2}
    assert len(shop.client.skew()["samples"]) == 2
    # A row of the key that wasn't compared yet isn't compared any more.
    shop.ask([shop.till.city], [102, 103])
    eventually(lambda: shop.rows() == 4, shop.archive.said)
    shop.client.erase(payers, pd.DataFrame({"user": [102]}))
    eventually(lambda: len(shop.client.skew()["samples"]) == 1, shop.archive.said)
    assert shop.compared(2)["city"] == {Finding.UNKNOWN: 2, SAME: 1}
    shop.plant(datetime.now(UTC), {"Till.user": 102}, {"Till.city": "nowhere"})
    shop.plant(datetime.now(UTC), {"Till.user": 103}, {"Till.city": "c3"})
    assert shop.compared(3)["city"] == {Finding.UNKNOWN: 2, SAME: 2}
    assert len(shop.client.skew()["samples"]) == 1


def test_findings_are_void_if_a_key_is_erased_meanwhile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    payers = shop.commit()[1]
    shop.pay_often(9, first_user=200)
    shop.ask([shop.till.city], [202])
    eventually(lambda: shop.rows() == 1, shop.archive.said)
    watch = shop.watch()
    record = SkewStore.add

    def erase_first(store: SkewStore, *given: Any) -> bool:
        shop.client.erase(payers, pd.DataFrame({"user": [202]}))
        return record(store, *given)

    monkeypatch.setattr(SkewStore, "add", erase_first)
    with pytest.raises(UnavailableError, match="erased"):
        watch.run_once()
    assert shop.found() == {}


# This test comes last, since the server then misses a topic of its branch.
@pytest.mark.full(reason="a commit and its watch more; ordinary rows are compared above")
def test_rows_of_a_former_commit_are_compared_by_its_own_definitions(shop: Shop, kafka: str) -> None:
    shop.commit()
    shop.pay_often(7)
    before = shop.ask([shop.till.scaled, shop.till.n, shop.till.city], USERS)
    (spent,) = shop.http.get("/definition/Spent").json()["definitions"]
    (former,) = spent["topics"]
    # The extractor changes, and datasets stay. Rows that the former one served are still right.
    shop.commit(factor=10)
    after = shop.ask([shop.till.scaled], USERS)
    assert (before["Till.scaled"] * 5).round(3).tolist() == after["Till.scaled"].round(3).tolist()
    assert shop.compared(2 * len(USERS)) == {
        "scaled": {SAME: 2 * len(USERS)},
        "n": {SAME: len(USERS)},
        "city": {SAME: len(USERS)},
    }
    # The datasets change, and the topic of the aggregate that the former ones had is removed.
    shop.ask([shop.till.scaled, shop.till.city], USERS)
    shop.commit(shop.version + 1, factor=10)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([former])[former].result()
    found = shop.compared(3 * len(USERS))
    assert found["scaled"] == {SAME: 2 * len(USERS), Finding.CHANGED_DEFINITION: len(USERS)}
    assert found["city"] == {SAME: 2 * len(USERS)}
    assert {f["served_now"] for f in shop.client.skew()["features"]} == {False}
