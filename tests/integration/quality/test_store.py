"""The record of counts: each pass counts once, samples are bounded, old counts go, and statuses change once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import Status
from caraway.offline.monitoring.quality.store import KEPT_SAMPLES, Findings, QualityStore, Sample
from caraway.state.database import connect

HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


@pytest.fixture
def store(postgres: str) -> Iterator[QualityStore]:
    engine = connect(postgres)
    yield QualityStore(engine)
    engine.dispose()


def findings(since: int | None, until: int, *, at: datetime = HOUR, failed: int = 0, samples: int = 0) -> Findings:
    counts = Counts(10, failed)
    return Findings(
        check_id="c",
        since={} if since is None else {0: since},
        until={0: until},
        windows={(0, at): counts},
        totals={0: counts},
        samples=[Sample(0, at, None, bytes([n])) for n in range(samples)],
    )


def test_a_pass_counts_once(store: QualityStore) -> None:
    assert store.add(findings(None, 5, failed=3))
    assert store.positions("c") == {0: 5}
    # Its answer may have been lost, or another process may have made the same pass.
    assert store.add(findings(None, 5, failed=3))
    assert not store.add(findings(None, 7))
    assert not store.add(findings(5, 8), lambda _: False)
    assert store.add(findings(5, 8, at=HOUR + timedelta(minutes=5)))
    assert store.totals()["c", 0].counts == Counts(20, 3)
    assert store.windows(["c"], 24)["c"] == {
        (0, HOUR): Counts(10, 3),
        (0, HOUR + timedelta(minutes=5)): Counts(10, 0),
    }
    assert store.newest("c") == HOUR + timedelta(minutes=5)
    assert (store.positions("other"), store.newest("other"), store.windows(["other"], 1)) == ({}, None, {})


def test_the_newest_samples_stay_and_those_of_erased_keys_go(store: QualityStore) -> None:
    assert store.add(findings(None, 1, samples=KEPT_SAMPLES + 3))
    assert [sample.row[0] for sample in store.samples(["c"], 100)["c"]] == list(range(KEPT_SAMPLES + 2, 2, -1))
    assert [sample.row[0] for sample in store.samples(["c"], 2)["c"]] == [KEPT_SAMPLES + 2, KEPT_SAMPLES + 1]
    assert store.forget("c", lambda key, row: key is None and row[0] % 2 == 0) == KEPT_SAMPLES // 2
    assert all(sample.row[0] % 2 for sample in store.samples(["c"], 100)["c"])


def test_old_windows_become_hours_and_then_go(store: QualityStore) -> None:
    times = [HOUR, HOUR + timedelta(minutes=20), HOUR + timedelta(minutes=55), HOUR + timedelta(days=3)]
    for number, at in enumerate(times):
        assert store.add(findings(number or None, number + 1, at=at, failed=1))
    store.prune(WEEK, ["c"])
    windows = store.windows(["c"], 24 * 30)["c"]
    assert windows == {(0, HOUR): Counts(30, 3), (0, times[-1]): Counts(10, 1)}
    store.prune(timedelta(days=2), ["c"])
    assert store.windows(["c"], 24 * 30)["c"] == {(0, times[-1]): Counts(10, 1)}
    assert store.totals()["c", 0].counts == Counts(40, 4)
    store.prune(WEEK, ["other"])
    assert (store.totals(), store.positions("c")) == ({}, {})


def test_a_status_changes_once(store: QualityStore) -> None:
    store.add(findings(None, 1))
    assert store.change("c", 0, Status.VIOLATED, None, HOUR)
    assert not store.change("c", 0, Status.VIOLATED, None, HOUR)
    store.notified([("c", 0, HOUR + timedelta(seconds=1))], HOUR)
    assert store.totals()["c", 0].notified_at is None
    store.notified([("c", 0, HOUR)], HOUR)
    assert store.totals()["c", 0].notified_at == HOUR
    assert store.change("c", 0, Status.OK, Status.VIOLATED, HOUR + WEEK)
    total = store.totals()["c", 0]
    assert (total.status, total.changed_at, total.violated_at) == (Status.OK, HOUR + WEEK, HOUR)
    assert total.notified_at is None
