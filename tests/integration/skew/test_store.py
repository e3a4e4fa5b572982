"""The record of findings: each pass counts once, samples are bounded, and old findings go."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from caraway.state.database import connect
from caraway.state.findings import CountKey, Finding, Findings, Sample
from caraway.state.skew import KEPT_SAMPLES, MAX_TEXT, SkewStore
from caraway.state.watched import WatchLease

HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE = Finding.LATE_DATA


@pytest.fixture
def store(postgres: str) -> Iterator[SkewStore]:
    engine = connect(postgres)
    yield SkewStore(engine)
    engine.dispose()


def key(finding: Finding = Finding.SAME, *, hour: datetime = HOUR, branch: str = "main", commit: str = "c") -> CountKey:
    return CountKey(branch=branch, commit=commit, feature="A.x", hour=hour, finding=finding)


def sample(offset: int, *, served: str = "1", branch: str = "main", finding: Finding = LATE) -> Sample:
    return Sample(
        branch=branch,
        commit="c",
        feature="A.x",
        finding=finding,
        served_at=HOUR + timedelta(seconds=offset),
        at=HOUR,
        query="q",
        served=served,
        recomputed="2",
        partition=0,
        offset=offset,
        row=offset % 3,
    )


def findings(since: int | None, until: int, counts: dict[CountKey, int], *samples: Sample) -> Findings:
    return Findings(
        topic_id="t",
        since={} if since is None else {0: since},
        until={0: until},
        counts=Counter(counts),
        samples=samples,
    )


def offsets(store: SkewStore, branch: str = "main") -> list[int]:
    return [found.offset for found in store.samples(branch, HOUR, ["A.x"], 1_000)]


def test_a_pass_counts_once(store: SkewStore) -> None:
    first = findings(None, 5, {key(): 3, key(LATE): 2}, sample(1))
    assert store.add(first)
    assert store.positions("t") == {0: 5}
    # Its answer may have been lost, or another process may have made the same pass.
    assert store.add(first)
    assert not store.add(findings(None, 7, {key(): 9}, sample(2)))
    assert store.add(findings(5, 8, {key(): 1, key(commit="d"): 4}))
    assert store.totals() == {("main", "A.x", Finding.SAME): 8, ("main", "A.x", LATE): 2}
    assert [(found.commit, found.counts) for found in store.counts("main", HOUR)] == [
        ("c", {Finding.SAME: 4, LATE: 2}),
        ("d", {Finding.SAME: 4}),
    ]
    assert offsets(store) == [1]
    assert store.positions("other") == {}


def test_a_pass_that_isn_t_allowed_writes_nothing(store: SkewStore) -> None:
    def refuse(connection: sa.Connection) -> bool:
        del connection
        return False

    assert not store.add(findings(None, 5, {key(): 3}, sample(1)), refuse)
    assert (store.positions("t"), store.totals(), offsets(store)) == ({}, {}, [])


def test_samples_are_bounded_and_forgotten_by_their_positions(store: SkewStore) -> None:
    store.add(findings(None, 1, {}, *(sample(n) for n in range(KEPT_SAMPLES))))
    store.add(findings(1, 2, {}, *(sample(n) for n in range(100, 105)), sample(7, finding=Finding.UNKNOWN)))
    assert sorted(offsets(store)) == sorted([*range(5, KEPT_SAMPLES), *range(100, 105), 7])
    assert len(store.samples("main", HOUR, ["A.x"], 3)) == 3
    assert store.samples("main", HOUR, ["A.y"], 3) == store.samples("main", HOUR, [], 3) == []
    store.forget([(0, 7, 1), (0, 8, 0), (1, 9, 0), (0, 101, 101 % 3)])
    # The sample at offset 8 has another number than the one that is named.
    assert sorted(offsets(store)) == [5, 6, *range(8, KEPT_SAMPLES), 100, 102, 103, 104]


def test_values_are_stored_as_postgres_can_have_them(store: SkewStore) -> None:
    store.add(findings(None, 1, {}, sample(1, served="a\x00b" + "c" * MAX_TEXT)))
    (found,) = store.samples("main", HOUR, ["A.x"], 9)
    assert found.served == "a\ufffdb" + "c" * (MAX_TEXT - 3) + "…"
    assert replace(found, served="1") == sample(1)


def test_old_findings_and_those_of_other_branches_go(store: SkewStore) -> None:
    later = HOUR + timedelta(hours=2)
    counts = {key(): 1, key(hour=later): 2, key(hour=later, branch="gone"): 4}
    store.add(findings(None, 1, counts, sample(1), sample(10_000), sample(10_001, branch="gone")))
    store.prune(HOUR + timedelta(hours=1), ["main"])
    assert [found.counts for found in store.counts("main", HOUR)] == [{Finding.SAME: 2}]
    assert (store.counts("gone", HOUR), offsets(store), offsets(store, "gone")) == ([], [10_000], [])
    # Totals never shrink, since metrics show them.
    assert store.totals() == {("main", "A.x", Finding.SAME): 3}


def test_only_others_keep_a_process_from_starting(store: SkewStore, postgres: str) -> None:
    engine = connect(postgres)
    lease = WatchLease(engine)
    assert not lease.is_held(besides="me")
    with engine.begin() as connection:
        row = {"name": "monitoring", "token": 1, "holder": "me", "expires_at": sa.func.now() + timedelta(minutes=1)}
        connection.execute(sa.insert(sa.table("leases", *map(sa.column, row))).values(row))
    assert (lease.is_held(besides="me"), lease.is_held(besides="you")) == (False, True)
    engine.dispose()
