"""The pyramid at scale: long traces against running totals, and the number of entries that a read touches."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caraway.dataplane.index.aggregates.partials import Partial
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.graph.aggregates import AggregateFunction
from caraway.graph.plan.model import IndexKind
from tests.unit.dataplane.index.counting import CountingStore
from tests.unit.dataplane.index.naive import CODEC, SECOND, NaiveIndex, Sent, aggregate, index_plan

DAY = 86_400 * SECOND
KEY = CODEC.encode_key(["a"]) or b""
AGGREGATES = tuple(
    aggregate(function, of, window, None if function in {"count", "sum"} else -1)
    for function, of in (
        (AggregateFunction.COUNT, None),
        (AggregateFunction.SUM, "n"),
        (AggregateFunction.STDDEV, "x"),
        (AggregateFunction.VARIANCE, "x"),
        (AggregateFunction.MIN, "n"),
    )
    for window in (None, 60 * SECOND, 3600 * SECOND, DAY)
)
COLUMNS = [spec.into for spec in AGGREGATES] + ["t"]
PLAN = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=AGGREGATES)
REVISED = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=AGGREGATES, asset=b"asset--2")
_MORE = pytest.mark.full(reason="five seconds each; each run has one long trace")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    with CountingStore(tmp_path / "index") as opened:
        yield opened


def uneven_times(count: int, seed: int) -> list[int]:
    """Return times in three days with bursts, pauses and moments at which much happens."""
    rng = random.Random(seed)
    now = 0
    times: list[int] = []
    while len(times) < count:
        now += rng.choice([0, 0, 1, 900, SECOND // 50, 4 * SECOND])
        if rng.random() < 0.001:
            now += rng.randrange(3 * 3600 * SECOND)
        times += [now] * (200 if rng.random() < 0.0005 else 1)
    return times[:count]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=_MORE) for seed in (1, 2))])
def test_long_traces_are_exact(store: CountingStore, seed: int) -> None:
    rng = random.Random(seed)
    times = uneven_times(12_000, seed)
    sent = [
        Sent("a", position_id(place, 0), b"", PUT, time, (rng.randrange(-1000, 1000), rng.gauss(0, 1), None))
        for place, time in enumerate(times)
    ]
    # A tenth of the records is late, and some come twice.
    order = sorted(range(len(sent)), key=lambda place: place + (rng.random() < 0.1) * rng.randrange(3000))
    deliveries = [sent[place] for place in order] + rng.sample(sent, 500)
    writer, reader, naive = IndexWriter(store), IndexReader(store), NaiveIndex(PLAN)
    for item in deliveries:
        naive.apply(item)
    start = 0
    while start < len(deliveries):
        size = rng.choice([1, 7, 100, 3000])
        batch = [item.message(start + place) for place, item in enumerate(deliveries[start : start + size])]
        writer.apply(PLAN, batch)
        start += size
    for near in [*rng.sample(times, 12), times[-1], times[-1] + DAY, -1]:
        at = near + rng.choice([0, 1, -1, SECOND])
        columns, found = reader.read(PLAN, [KEY], at, COLUMNS)
        assert ([column[0] for column in columns], found[0]) == naive.read("a", at, COLUMNS)


@pytest.mark.slow
def test_long_traces_of_revisions_are_exact(store: CountingStore) -> None:
    rng = random.Random(7)
    times = uneven_times(3000, 7)
    writer, reader, naive = IndexWriter(store), IndexReader(store), NaiveIndex(REVISED)
    offset = 0
    for rev in range(4):
        batch = []
        for place, time in enumerate(times):
            if rev == 0 or rng.random() < 0.4:
                op = RETRACT if rng.random() < 0.3 else PUT
                row = None if op == RETRACT else (rng.randrange(-1000, 1000), rng.gauss(0, 1), None)
                moved = time + rng.choice([0, 0, 5, 3600 * SECOND])
                item = Sent(rng.choice("ab"), position_id(place, 0), bytes([rev]), op, moved, row)
                naive.apply(item)
                batch.append(item.message(offset))
                offset += 1
        for start in range(0, len(batch), 500):
            writer.apply(REVISED, batch[start : start + 500])
        for at in [*rng.sample(times, 6), times[-1] + SECOND]:
            for key in "ab":
                columns, found = reader.read(REVISED, [CODEC.encode_key([key]) or b""], at, COLUMNS)
                assert ([column[0] for column in columns], found[0]) == naive.read(key, at, COLUMNS)


def test_when_all_is_retracted_nothing_is_left(store: CountingStore) -> None:
    writer, reader = IndexWriter(store), IndexReader(store)
    puts = [Sent("a", position_id(n, 0), b"", PUT, n * SECOND, (n, 0.5, None)) for n in range(300)]
    retractions = [Sent("a", position_id(n, 0), b"\x01", RETRACT, 0, None) for n in range(300)]
    writer.apply(REVISED, [item.message(place) for place, item in enumerate(puts)])
    assert reader.read(REVISED, [KEY], DAY, ["count_None_None"]) == ([[300]], [True])
    writer.apply(REVISED, [item.message(300 + place) for place, item in enumerate(retractions)])
    assert reader.read(REVISED, [KEY], DAY, ["count_None_None", "t"]) == ([[None], [None]], [False])
    left = [key for key, _ in store.scan(REVISED.asset, REVISED.asset + b"\xff\xff")]
    assert left == []


@pytest.mark.parametrize("count", [10, 64, 65, 1000, 30_000])
def test_a_read_touches_few_entries(store: CountingStore, count: int) -> None:
    """Check that a read touches the tiles beside each edge of a window, a few on each level, and few inputs."""
    writer, reader = IndexWriter(store), IndexReader(store)
    step = 2 * DAY // count
    items = [Sent("a", position_id(n, 0), b"", PUT, n * step, (n, n / 7, None)).message(n) for n in range(count)]
    for start in range(0, count, 4000):
        writer.apply(PLAN, items[start : start + 4000])
    fan, split, levels = 2**DEFAULT_GEOMETRY.fan_bits, DEFAULT_GEOMETRY.split, DEFAULT_GEOMETRY.level_of(0, 2 * DAY)
    rng = random.Random(count)
    for _ in range(50):
        store.counts.clear()
        reader.read(PLAN, [KEY], rng.randrange(2 * DAY), ["sum_n_86400000000", "t"])
        assert store.counts["iterators"] == 1
        assert store.counts["value"] <= 2 * (levels * fan + split) + fan
        assert store.seeks <= 2 * levels + 4
        # In practice this is far below the bound, and below the number of aggregate inputs.
        assert store.counts["value"] <= 200


def test_a_key_with_few_inputs_has_a_root_and_no_tiles(store: CountingStore) -> None:
    writer = IndexWriter(store)
    split = DEFAULT_GEOMETRY.split
    items = [Sent("a", position_id(n, 0), b"", PUT, n * SECOND, (n, 0.5, None)) for n in range(split + 1)]
    writer.apply(PLAN, [item.message(place) for place, item in enumerate(items[:split])])
    assert len(list(store.scan(PLAN.asset, PLAN.asset + b"\xff"))) == split + 1
    writer.apply(PLAN, [items[split].message(split)])
    assert len(list(store.scan(PLAN.asset, PLAN.asset + b"\xff"))) > split + 2


def test_many_inputs_of_one_moment_are_one_tile(store: CountingStore) -> None:
    writer, reader = IndexWriter(store), IndexReader(store)
    items = [Sent("a", position_id(n, 0), b"", PUT, 5 * SECOND, (1, 0.5, None)).message(n) for n in range(500)]
    writer.apply(PLAN, items)
    assert len(list(store.scan(PLAN.asset, PLAN.asset + b"\xff"))) == 501
    # A distant aggregate input makes the pyramid as high as it can be.
    writer.apply(PLAN, [Sent("a", position_id(500, 0), b"", PUT, 2**63 - 1, (1, 0.5, None)).message(500)])
    writer.apply(PLAN, [Sent("a", position_id(501, 0), b"", PUT, -(2**63), (1, 0.5, None)).message(501)])
    column = ["count_None_None", "count_None_60000000"]
    assert reader.read(PLAN, [KEY], 6 * SECOND, column)[0] == [[501], [500]]
    assert reader.read(PLAN, [KEY] * 4, [-(2**63), 5 * SECOND - 1, 2**63 - 1, 2**70], column)[0] == [
        [1, 1, 502, 502],
        [1, 0, 1, 1],
    ]


def test_windows_read_together_are_read_as_each_alone_is(store: CountingStore) -> None:
    """Check that no window makes another one read more, or changes an estimate of it.

    A tile is opened only for the windows that cut it, so that the others have the same estimates as without these.
    """
    distinct = tuple(
        replace(
            aggregate(AggregateFunction.COUNT, "n", window, None), into=f"distinct_{window}", unique=True, approx=True
        )
        for window in (None, 60 * SECOND, 3600 * SECOND, DAY)
    )
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=(*AGGREGATES, *distinct), asset=b"asset--3")
    writer, reader = IndexWriter(store), IndexReader(store)
    items = [Sent("a", position_id(n, 0), b"", PUT, n * 60 * SECOND, (n % 900, n / 7, None)) for n in range(3000)]
    writer.apply(plan, [item.message(place) for place, item in enumerate(items)])
    for at_us in (DAY + 7777 * SECOND, 2 * DAY + 5555 * SECOND, 3 * DAY):
        by_window = [
            [spec.into for spec in plan.aggregates if spec.window == window]
            for window in dict.fromkeys(spec.window for spec in plan.aggregates)
        ]
        alone: list[object] = []
        store.counts.clear()
        for columns in by_window:
            alone += reader.read(plan, [KEY], at_us, columns)[0]
        touched = store.touched
        store.counts.clear()
        together = reader.read(plan, [KEY], at_us, [column for columns in by_window for column in columns])[0]
        assert together == alone
        assert store.touched <= touched


def test_windows_longer_than_the_history_of_a_key_share_its_sums(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = IndexWriter(store), IndexReader(store)
    items = [Sent("a", position_id(n, 0), b"", PUT, n * SECOND, (n, n / 7, None)).message(n) for n in range(900)]
    writer.apply(PLAN, items)
    columns = [column for column in COLUMNS[:-1] if not column.endswith("_60000000")]
    at_us = 1_000 * SECOND
    alone = [reader.read(PLAN, [KEY], at_us, [column])[0][0] for column in columns]
    merged: list[int] = []
    merge = Partial.merge_packed

    def counted(partial: Partial, tiles: Sequence[Sequence[Any]]) -> None:
        merged.append(len(tiles))
        merge(partial, tiles)

    monkeypatch.setattr(Partial, "merge_packed", counted)
    assert reader.read(PLAN, [KEY], at_us, columns)[0] == alone
    assert merged == [1]
