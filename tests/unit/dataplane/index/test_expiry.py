"""A sweep changes no read from the horizon on, and removes all versions that none of these reads returns."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.records.expiry import sweep
from caraway.dataplane.index.storage.keys import ASSET_BYTES, OUTBOX
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.plan.model import IndexKind, IndexPlan
from tests.effort import examples
from tests.unit.dataplane.index.naive import CODEC, NaiveIndex, Sent, index_plan
from tests.unit.dataplane.index.test_index import ROW_COLUMNS, same

pytestmark = pytest.mark.slow

KEYS = ("", "a", "ab", "b\xff")
PLAIN, REVISED = (index_plan(IndexKind.VERSIONS, revised=revised) for revised in (False, True))
OTHER = index_plan(IndexKind.VERSIONS, revised=False, asset=b"asset--2")
ROW: tuple[Any, ...] = (1, 0.5, "1.00")

sent = st.builds(
    lambda key, number, op, time, rev: Sent(key, position_id(number, 0), bytes([rev]) if rev else b"", op, time, ROW),
    st.sampled_from(KEYS),
    st.integers(0, 40),
    st.sampled_from([PUT, PUT, DELETE]),
    st.integers(-20, 20),
    st.just(0),
)


def apply(store: IndexStore, plan: IndexPlan, records: list[Sent], first: int = 0) -> None:
    IndexWriter(store).apply(plan, [record.message(first + position) for position, record in enumerate(records)])


def swept(store: IndexStore, plan: IndexPlan, horizon: int, limit: int) -> int:
    removed, start, slices = 0, b"", 0
    while True:
        found = sweep(store, plan.asset, horizon, start, limit)
        removed += found.removed
        assert found.removed <= limit
        if found.next is None:
            return removed
        start, slices = found.next, slices + 1
        assert slices < 1000, "it goes in a circle"


def entries(store: IndexStore, plan: IndexPlan) -> int:
    return len(list(store.scan(plan.asset, plan.asset + OUTBOX)))


def check(store: IndexStore, plan: IndexPlan, naive: NaiveIndex, horizon: int) -> None:
    reader = IndexReader(store)
    asked = [(key, at) for key in KEYS for at in {horizon, horizon + 1, *range(horizon, 23, 4), 22}]
    columns, found = reader.read(
        plan, [CODEC.encode_key([key]) or b"" for key, _ in asked], [at for _, at in asked], ROW_COLUMNS
    )
    for position, (key, at) in enumerate(asked):
        expected, there = naive.read(key, at, ROW_COLUMNS)
        assert there == found[position]
        assert same([column[position] for column in columns], expected), (key, at)


def distinct(records: list[Sent]) -> list[Sent]:
    """Return the records with only the last one of each id."""
    return list({record.record_id: record for record in records}.values())


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(sent, max_size=40).map(distinct),
    st.lists(sent, max_size=10),
    st.integers(-22, 22),
    st.integers(1, 12),
    st.sampled_from([PLAIN, REVISED]),
)
# Examining a key may use up the limit of a slice; the sweep must make progress nevertheless.
@example([Sent("a", position_id(n, 0), b"", PUT, n, ROW) for n in range(3)], [], 2, 1, PLAIN)
def test_reads_from_the_horizon_on_stay_as_they_were(
    before: list[Sent], late: list[Sent], horizon: int, limit: int, plan: IndexPlan
) -> None:
    naive = NaiveIndex(plan)
    with tempfile.TemporaryDirectory() as folder, IndexStore(Path(folder) / "db", cache_bytes=1 << 20) as store:
        apply(store, OTHER, before)
        apply(store, plan, before)
        for record in before:
            naive.apply(record)
        others, was = entries(store, OTHER), entries(store, plan)
        removed = swept(store, plan, horizon, limit)
        assert entries(store, plan) == was - removed
        assert entries(store, OTHER) == others
        check(store, plan, naive, horizon)
        # The version of each key that holds at the horizon stays, and all that begin later.
        newest = {s.key for s in naive.newest.values() if s.time <= horizon and s.op != RETRACT}
        later = [s for s in naive.newest.values() if s.time > horizon and s.op != RETRACT]
        assert entries(store, plan) == len(newest) + len(later)
        assert swept(store, plan, horizon, limit) == 0
        # Neither late records nor a repetition of all records become visible.
        late = [record for record in late if record.record_id not in naive.newest]
        again = distinct([*before, *late])
        apply(store, plan, again, len(before))
        for record in again:
            naive.apply(record)
        check(store, plan, naive, horizon)


def test_the_space_is_given_back(tmp_path: Path) -> None:
    with IndexStore(tmp_path / "db") as store:
        row = (1, 0.5, "1.00")
        apply(store, PLAIN, [Sent("a", position_id(n, 0), b"", PUT, n, row) for n in range(50_000)])
        store.db.flush()
        full = store.size_bytes()
        assert swept(store, PLAIN, 10**9, 700) == 49_999
        store.db.flush()
        store.db.compact_range(None, None)
        assert store.size_bytes() < full / 100
        assert len(PLAIN.asset) == ASSET_BYTES
