"""Many aggregate inputs of one key: the entries that reads and writes touch, for functions that keep values."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.topics.codec import PUT, RETRACT
from caraway.dataplane.topics.identity import position_id
from caraway.dtypes.types import FLOAT
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import IndexKind
from caraway.graph.windows import ContinuousWindow, HoppingWindow
from tests.unit.dataplane.index.counting import CountingStore
from tests.unit.dataplane.index.naive import CODEC, SECOND, Sent, index_plan

DAY = 86_400 * SECOND
KEY = CODEC.encode_key(["a"]) or b""
FUNCTION = AggregateFunction
FOREVER, A_DAY = ContinuousWindow(length_us=None), ContinuousWindow(length_us=DAY)
HOURLY = HoppingWindow(length_us=DAY, stride_us=3600 * SECOND)


def spec(into: str, function: AggregateFunction, of: str, window: Any, **parameters: Any) -> AggregateSpec:
    return AggregateSpec(function=function, into=into, of=of, window=window, default=None, dtype=FLOAT, **parameters)


def specs(window: Any) -> tuple[AggregateSpec, ...]:
    return (
        spec("distinct", FUNCTION.DISTINCT, "n", window),
        spec("unique", FUNCTION.COUNT, "n", window, unique=True, approx=True),
        spec("last", FUNCTION.LAST_K, "n", window, limit=5, dedup=False),
        spec("last_distinct", FUNCTION.LAST_K, "n", window, limit=5, dedup=True),
        spec("last_present", FUNCTION.LAST_K, "d", window, limit=5, dedup=False, dropnull=True),
        spec("first_distinct", FUNCTION.FIRST_K, "n", window, limit=5, dedup=True),
        spec("quantile", FUNCTION.QUANTILE, "x", window, p=0.5, approx=True),
        spec("decayed", FUNCTION.EXP_DECAY_SUM, "x", window, half_life_us=3600 * SECOND),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    with CountingStore(tmp_path / "index") as opened:
        yield opened


def puts(count: int, distinct: int) -> list[Sent]:
    """Return two days of few repeated values, in the second day of a single one; column d is nearly always null."""
    rng = random.Random(count)
    step = 2 * DAY // count
    return [
        Sent(
            "a",
            position_id(n, 0),
            b"",
            PUT,
            n * step,
            (7 if n > count // 2 else rng.randrange(distinct), rng.gauss(100, 20), "1.00" if n % 5000 == 3 else None),
        )
        for n in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("window", [FOREVER, A_DAY, HOURLY], ids=["forever", "a day", "hourly"])
@pytest.mark.parametrize("distinct", [20, 5000])
def test_a_read_touches_few_entries(store: CountingStore, window: Any, distinct: int) -> None:
    aggregates = specs(window)
    plan = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=aggregates)
    writer, reader = IndexWriter(store), IndexReader(store)
    items = [item.message(place) for place, item in enumerate(puts(30_000, distinct))]
    for start in range(0, len(items), 4000):
        writer.apply(plan, items[start : start + 4000])
    for aggregate in aggregates:
        store.counts.clear()
        values, found = reader.read(plan, [KEY], 2 * DAY, [aggregate.into])
        assert found == [True]
        entries = store.counts["value"]
        if aggregate.into == "distinct":
            # If tiles don't keep all their values, single aggregate inputs are read.
            assert entries <= (600 if distinct == 20 else 30_100)
            assert set(values[0][0]) == {  # type: ignore[call-overload]
                item.row[0] for item in puts(30_000, distinct) if item.row is not None and in_window(window, item.time)
            }
        else:
            assert entries <= 300, (aggregate.into, entries)
    last, distinct_last = (reader.read(plan, [KEY], 2 * DAY, [name])[0][0][0] for name in ("last", "last_distinct"))
    assert last == [7] * 5
    assert isinstance(distinct_last, list)
    assert distinct_last[0] == 7


def in_window(window: Any, time_us: int) -> bool:
    if window is FOREVER:
        return True
    return time_us >= DAY - SECOND if window is A_DAY else DAY - 3600 * SECOND <= time_us < 2 * DAY - 3600 * SECOND


@pytest.mark.slow
def test_a_retraction_reads_few_entries(store: CountingStore) -> None:
    plan = index_plan(IndexKind.AGGREGATE, revised=True, aggregates=specs(FOREVER))
    writer = IndexWriter(store)
    made = puts(20_000, 5000)
    messages = [item.message(place) for place, item in enumerate(made)]
    for start in range(0, len(messages), 4000):
        writer.apply(plan, messages[start : start + 4000])
    for place in (0, 77, 9_999, 19_999):
        store.counts.clear()
        retraction = Sent("a", made[place].record_id, b"\x01", RETRACT, 0, None)
        assert writer.apply(plan, [retraction.message(20_000 + place)]).written == 1
        assert store.counts["scanned"] <= 200
