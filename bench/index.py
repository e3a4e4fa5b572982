"""The index alone, without Kafka: writes a second, and the time of a read by the number of events in its window.

    python bench/index.py [--aggregate-inputs 100000] [--events 1000000] [--json FILE]

Records are encoded before the clock starts and applied as the worker applies them: in batches of 4,000 from a backlog,
or one by one as they come. One set of aggregates is count, sum, average, standard deviation and maximum of a float,
over an hour, a day and forever. The other set keeps values: distinct ones, lists, a quantile, a decayed sum, of a
column with 100 values. The pyramid's shape can be changed, for comparison.
"""

import argparse
import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.geometry import DEFAULT_GEOMETRY, Geometry
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema
from caraway.graph.windows import ContinuousWindow, HoppingWindow

BACKLOG_BATCH = 4000
SECOND = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
START_US = 1_700_000_000 * SECOND
WINDOWS = {"hour": HOUR, "day": DAY, "forever": None}
# The windows of the case of many keys, each of which has up to this many events in a month.
MANY_WINDOWS = {"5m": HOUR // 12, "1h": HOUR, "1d": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
MANY_KEYS, MANY_EVENTS = 100, 1500
FUNCTIONS = (
    AggregateFunction.COUNT,
    AggregateFunction.SUM,
    AggregateFunction.AVERAGE,
    AggregateFunction.STDDEV,
    AggregateFunction.MAX,
)
READS = 400

KEY = Column(name="key", dtype=STRING)
COLUMNS = (KEY, Column(name="x", dtype=FLOAT), Column(name="n", dtype=INT))
SCHEMA = RecordSchema(keys=(KEY,), columns=COLUMNS, timestamp="at", fingerprint=1)
# The aggregates that keep values: for each its function, column and parameters.
KEEPING: dict[str, tuple[AggregateFunction, str, dict[str, Any]]] = {
    "distinct": (AggregateFunction.DISTINCT, "n", {}),
    "unique": (AggregateFunction.COUNT, "n", {"unique": True, "approx": True}),
    "last 10": (AggregateFunction.LAST_K, "x", {"limit": 10}),
    "last 10 distinct": (AggregateFunction.LAST_K, "n", {"limit": 10, "dedup": True}),
    "median": (AggregateFunction.QUANTILE, "x", {"p": 0.5, "approx": True}),
    "decayed sum": (AggregateFunction.EXP_DECAY_SUM, "x", {"half_life_us": HOUR}),
}
CODEC = RecordCodec(SCHEMA)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aggregate-inputs", type=int, default=100_000, help="records written in each scenario")
    parser.add_argument("--events", type=int, default=1_000_000, help="greatest number of events in a window")
    parser.add_argument("--base-bits", type=int, default=DEFAULT_GEOMETRY.base_bits)
    parser.add_argument("--fan-bits", type=int, default=DEFAULT_GEOMETRY.fan_bits)
    parser.add_argument("--split", type=int, default=DEFAULT_GEOMETRY.split)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    geometry = Geometry(options.base_bits, options.fan_bits, options.split)
    figures: dict[str, object] = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "geometry": {"base_bits": geometry.base_bits, "fan_bits": geometry.fan_bits, "split": geometry.split},
        "writes_per_s": writes(options.aggregate_inputs, geometry),
        "read_us": reads(options.events, geometry)
        | kept_reads(options.events // 10, geometry)
        | many_reads(min(MANY_EVENTS, options.events // MANY_KEYS), geometry),
    }
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    print(json.dumps(figures))


def writes(count: int, geometry: Geometry) -> dict[str, float]:
    """Return records a second in each scenario."""
    aggregate = plan(IndexKind.AGGREGATE)
    revised = plan(IndexKind.AGGREGATE, revised=True)
    versions = plan(IndexKind.VERSIONS)
    few = count // 20
    scenarios: dict[str, tuple[IndexPlan, Sequence[Message], int]] = {
        "aggregate, 1 key": (aggregate, messages(count, 1), BACKLOG_BATCH),
        "aggregate, 1,000 keys": (aggregate, messages(count, 1000), BACKLOG_BATCH),
        "aggregate, 1,000,000 keys": (aggregate, messages(count, 1_000_000), BACKLOG_BATCH),
        "aggregate, 1,000 keys, a tenth late": (aggregate, messages(count, 1000, late=0.1), BACKLOG_BATCH),
        "aggregate, 1,000 keys, revised": (revised, messages(count, 1000), BACKLOG_BATCH),
        "all that keep values, 1 key": (keeping(DAY), messages(count, 1), BACKLOG_BATCH),
        "all that keep values, 1,000 keys": (keeping(DAY), messages(count, 1000), BACKLOG_BATCH),
        "all that keep values, 1,000 keys, one by one": (keeping(DAY), messages(few, 1000), 1),
        "aggregate, 1,000 keys, one by one": (aggregate, messages(few, 1000), 1),
        "versions, 1,000,000 keys": (versions, messages(count, 1_000_000), BACKLOG_BATCH),
        "versions, one by one": (versions, messages(few, 1_000_000), 1),
    }
    return {name: round(_rate(*scenario, geometry)) for name, scenario in scenarios.items()}


def reads(most: int, geometry: Geometry) -> dict[str, dict[str, float]]:
    """Return the median time of reads of one key, by events in the window."""
    index = plan(IndexKind.AGGREGATE)
    results: dict[str, dict[str, float]] = {}
    with store(geometry) as opened:
        writer, reader = IndexWriter(opened), IndexReader(opened)
        size, sizes = 10, []
        while size <= most:
            sizes.append(size)
            write(writer, index, messages(size, 1, name=f"n{size}", step_us=DAY // size), BACKLOG_BATCH)
            size *= 10
        for size in sizes:
            keys = [CODEC.encode_key([f"n{size}"]) or b""] * READS
            now = [START_US + DAY] * READS
            later = [START_US + DAY + HOUR] * READS
            past = [START_US + DAY - random.randrange(DAY // 2) for _ in range(READS)]
            columns = [f"{function.value}_day" for function in FUNCTIONS]
            every = [f"{function.value}_{window}" for function in FUNCTIONS for window in WINDOWS]
            results[f"{size:,} events"] = {
                "day, now": _median(reader, index, keys, later, columns),
                "day, in the past": _median(reader, index, keys, past, columns),
                "hour, day, forever, now": _median(reader, index, keys, now, every),
                "forever, now": _median(reader, index, keys, now, ["sum_forever"]),
            }
    with store(geometry) as opened:
        versions = plan(IndexKind.VERSIONS)
        write(IndexWriter(opened), versions, messages(100_000, 20_000), BACKLOG_BATCH)
        reader = IndexReader(opened)
        keys = [CODEC.encode_key([f"key{n}"]) or b"" for n in random.sample(range(20_000), READS)]
        results["versions"] = {"one row": _median(reader, versions, keys, [START_US + 2 * DAY] * READS, ["x"])}
    return results


def many_reads(each: int, geometry: Geometry) -> dict[str, dict[str, float]]:
    """Return the time a key of reads of 25 windows, of one key and of many, if each has some events in a month."""
    index = plan(IndexKind.AGGREGATE, windows=MANY_WINDOWS)
    count = max(1, each) * MANY_KEYS
    keys = [CODEC.encode_key([f"key{number}"]) or b"" for number in range(MANY_KEYS)]
    columns, now = [spec.into for spec in index.aggregates], START_US + 30 * DAY
    figures: dict[str, float] = {}
    with store(geometry) as opened:
        write(IndexWriter(opened), index, messages(count, MANY_KEYS, step_us=30 * DAY // count), BACKLOG_BATCH)
        reader = IndexReader(opened)
        for asked in (keys[:1], keys):
            times = []
            for _ in range(READS // 10):
                started = time.perf_counter()
                reader.read(index, asked, now, columns)
                times.append((time.perf_counter() - started) * 1e6 / len(asked))
            figures[f"a key, {len(asked)} asked"] = round(statistics.median(times), 1)
    return {f"25 windows, {each:,} events in 30 days": figures}


def kept_reads(count: int, geometry: Geometry) -> dict[str, dict[str, float]]:
    """Return the median time of reads of one key with `count` events a day, by aggregate and window."""
    results: dict[str, dict[str, float]] = {}
    keys, records = [CODEC.encode_key(["key"]) or b""] * READS, messages(count, 1)
    past = [START_US + DAY - random.randrange(DAY // 2) for _ in range(READS)]
    windows: dict[str, ContinuousWindow | HoppingWindow] = {
        "an hour": ContinuousWindow(length_us=HOUR),
        "a day by hours": HoppingWindow(length_us=DAY, stride_us=HOUR),
        "forever": ContinuousWindow(length_us=None),
    }
    for name, window in windows.items():
        index = keeping(window=window)
        with store(geometry) as opened:
            write(IndexWriter(opened), index, records, BACKLOG_BATCH)
            reader = IndexReader(opened)
            results[f"{count:,} events, {name}"] = {
                spec.into: _median(reader, index, keys, past, [spec.into]) for spec in index.aggregates
            }
    return results


def keeping(length_us: int | None = None, *, window: ContinuousWindow | HoppingWindow | None = None) -> IndexPlan:
    """Return the plan of an index of the aggregates that keep values."""
    aggregates = tuple(
        AggregateSpec(
            function=function,
            into=name,
            of=of,
            window=window or ContinuousWindow(length_us=length_us),
            default=None,
            dtype=FLOAT,
            **parameters,
        )
        for name, (function, of, parameters) in KEEPING.items()
    )
    return replace(plan(IndexKind.AGGREGATE), asset=b"bench--9", aggregates=aggregates)


def plan(kind: IndexKind, *, revised: bool = False, windows: Mapping[str, int | None] = WINDOWS) -> IndexPlan:
    """Return the plan of an index of versions or of the aggregates."""
    aggregates = tuple(
        AggregateSpec(
            function=function,
            into=f"{function.value}_{name}",
            of=None if function is AggregateFunction.COUNT else "x",
            window=ContinuousWindow(length_us=window_us),
            default=None,
            dtype=FLOAT,
        )
        for function in FUNCTIONS
        for name, window_us in windows.items()
    )
    return IndexPlan(
        dataset="Bench",
        asset=b"bench--" + bytes([1 + revised + 2 * (kind is IndexKind.VERSIONS)]),
        kind=kind,
        topic="bench",
        schema=SCHEMA,
        revised=revised,
        aggregates=aggregates if kind is IndexKind.AGGREGATE else (),
        fields=(KEY, *(Column(name=a.into, dtype=a.dtype) for a in aggregates), Column(name="at", dtype=INT)),
    )


def messages(
    count: int, keys: int, *, name: str = "key", late: float = 0.0, step_us: int | None = None
) -> list[Message]:
    """Return records of a day for random keys, in order of time except for a share of late ones."""
    step_us = step_us or DAY // count
    made: list[Message] = []
    for place in range(count):
        key = name if keys == 1 else f"{name}{random.randrange(keys)}"
        back = random.randrange(HOUR) if late and random.random() < late else 0
        value = CODEC.encode_value(
            op=PUT,
            time_us=START_US + place * step_us - back,
            ingested_us=START_US,
            record_id=position_id(place, 0),
            row=[key, random.gauss(10, 30), random.randrange(100)],
        )
        made.append((CODEC.encode_key([key]), value, 0, place))
    return made


def write(writer: IndexWriter, index: IndexPlan, records: Sequence[Message], batch: int) -> None:
    """Apply records in batches."""
    for start in range(0, len(records), batch):
        writer.apply(index, records[start : start + batch])


@contextmanager
def store(geometry: Geometry) -> Iterator[IndexStore]:
    """Open an empty index."""
    with tempfile.TemporaryDirectory() as folder, IndexStore(Path(folder) / "index", geometry=geometry) as opened:
        yield opened


def show(figures: dict[str, object]) -> None:
    """Print the figures as tables."""
    console = Console()
    written = Table("writes", "records/s")
    for name, rate in figures["writes_per_s"].items():  # type: ignore[attr-defined]
        written.add_row(name, f"{rate:,.0f}")
    console.print(written)
    read = Table("reads (median, us)", "read", "us")
    for size, times in figures["read_us"].items():  # type: ignore[attr-defined]
        for name, median in times.items():
            read.add_row(size, name, f"{median:.0f}")
    console.print(read)


def _rate(index: IndexPlan, records: Sequence[Message], batch: int, geometry: Geometry) -> float:
    with store(geometry) as opened:
        writer = IndexWriter(opened)
        started = time.perf_counter()
        write(writer, index, records, batch)
        return len(records) / (time.perf_counter() - started)


def _median(
    reader: IndexReader, index: IndexPlan, keys: Sequence[bytes], ats: Sequence[int], columns: Sequence[str]
) -> float:
    times = []
    for key, at_us in zip(keys, ats, strict=True):
        started = time.perf_counter()
        reader.read(index, [key], at_us, columns)
        times.append((time.perf_counter() - started) * 1e6)
    return round(statistics.median(times), 1)


if __name__ == "__main__":
    main()
