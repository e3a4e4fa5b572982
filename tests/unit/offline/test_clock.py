"""Offline reads of windows that close by the clock: they are those of an index at the same time."""

from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.records.closing_time import advance_clock_time
from caraway.dataplane.index.storage.store import IndexStore
from caraway.graph.windows import HoppingWindow
from caraway.offline.reader import OfflineReader
from tests.unit.dataplane.index.oracle import SECOND, Case, Job, case, fresh_random, random_change
from tests.unit.dataplane.index.test_against_engine import DISCRETE, HOPPING, LATE
from tests.unit.dataplane.index.test_emission import few
from tests.unit.offline.test_known import given
from tests.unit.offline.test_reader import bits, keys_of
from tests.unit.offline.topics import GivenTopics, topic_of

pytestmark = pytest.mark.filterwarnings("ignore:aggregate")

CASES = [
    few(case("events", DISCRETE, by_clock=True)),
    few(case("windows as keys, with a lookback", (None,), groupby=LATE[1], by_clock=True)),
]
# Times before, among and after those of the rows.
TIMES = [n * SECOND // 2 for n in range(-12, 90, 7)]


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_an_offline_read_is_that_of_an_index_at_the_same_time(found: Case, tmp_path: Path) -> None:
    rng, job = fresh_random(), Job(found)
    messages = [message for _ in range(20) for message in job.log(random_change(found, rng))]
    asked = [(key, at) for key in keys_of(found, job) for at in TIMES]
    keys, times = [key for key, _ in asked], [at for _, at in asked]
    seen = set()
    with IndexStore(tmp_path / "index") as store:
        assert not IndexWriter(store).apply(found.plan, messages).refused
        online = DatasetReader(IndexReader(store), [found.plan])
        for now_us in TIMES:
            advance_clock_time(store, found.plan.asset, now_us)
            expected = bits(online.read(found.plan.dataset, keys, times, found.columns))
            source = GivenTopics({found.plan.topic: messages})
            with OfflineReader(source, [found.plan], [topic_of(found.plan)], now_us=now_us) as offline:
                assert bits(offline.read(found.plan.dataset, keys, times, found.columns)) == expected
            seen.add(expected)
    assert len(seen) > 1, "the clock has closed no window"


@pytest.mark.parametrize("found", CASES, ids=lambda c: c.name)
def test_what_was_known_is_what_the_clock_had_closed_by_then(found: Case) -> None:
    rng, job = fresh_random(), Job(found)
    dated = [(message, rng.choice(TIMES)) for _ in range(12) for message in job.log(random_change(found, rng))]
    keys, plan = keys_of(found, job), found.plan
    now_us = TIMES[-4]
    asked = [(key, at) for key in keys for at in TIMES]
    rng.shuffle(asked)
    with OfflineReader(given(plan, dated), [plan], [topic_of(plan)], known=True, now_us=now_us) as known:
        values, there = known.read(plan.dataset, [k for k, _ in asked], [at for _, at in asked], found.columns)
    for at in TIMES:
        rows = [row for row, (_, time) in enumerate(asked) if time == at]
        then = [(message, ingested) for message, ingested in dated if ingested <= at]
        own = [asked[row][0] for row in rows]
        with OfflineReader(given(plan, then), [plan], [topic_of(plan)], now_us=min(at, now_us)) as ordinary:
            wanted, found_then = ordinary.read(plan.dataset, own, at, found.columns)
        assert [there[row] for row in rows] == found_then, at
        assert bits([[column[row] for row in rows] for column in values]) == bits(wanted), at


def test_without_a_time_the_present_closes_windows() -> None:
    found = case("windows alone", (), groupby=HOPPING, bare=True, by_clock=True)
    job, rng = Job(found), fresh_random()
    messages = job.log(random_change(found, rng))
    assert isinstance(found.operator.window, HoppingWindow)
    keys = [key for key in keys_of(found, job) if key[0] != "never"]
    source = GivenTopics({found.plan.topic: messages})
    with OfflineReader(source, [found.plan], [topic_of(found.plan)]) as offline:
        assert any(offline.read(found.plan.dataset, keys, 10**18, found.columns)[1])
