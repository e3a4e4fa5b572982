"""Offline reads in process, of tables of the archive on this machine's disk, without broker and server.

    python -m bench histories [--case versions|windows] [--rows 1000000] [--asked 100000] [--keys 10000] [--feast]

`versions`: ten features of a keyed dataset, as of random times. With --feast the same history, as one Parquet file, is
asked through Feast's file store, in its own environment and in the same run; the values are compared.
`windows`: count, sum, average, stddev and max over four windows of events, twenty row-windows for each row asked; and
one of them alone.

The time is that from the definition's plan to a frame of pandas, with all that is read from the disk, best of `--runs`.
The first run, in which libraries are loaded, is left out.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from feast.rival import VERSION, environment

from caraway import connectors
from caraway.client import Client
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.functions import compile_function
from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.frames import control_types, frame_of
from caraway.dataplane.archive.store.reading import ArchivedRecords, ArchivedTopics
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.datasets import Average, Count, Dataset, Max, Stddev, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr.polars.values import polars_type
from caraway.featuresets import Featureset, featureset
from caraway.featuresets import feature as F
from caraway.graph.plan.model import TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.lib import inputs
from caraway.offline.engine import OfflineEngine
from caraway.offline.queries.evaluation import evaluate
from caraway.offline.queries.inputs import InputPart
from caraway.offline.reader import OfflineReader

HISTORY_SCRIPT = Path(__file__).parent / "feast" / "history.py"
YEAR_US = 365 * 86_400 * 1_000_000
BEGIN_US = 1_704_067_200_000_000
FEATURES = 10
# The archive appends some hundred thousand rows at a time.
FILE_ROWS = 300_000
__owner__ = "bench@example.com"

webhook = connectors.Webhook(name="bench")


@connectors.source(webhook.endpoint("drivers"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Drivers:
    """Ten values of a driver, at a time."""

    driver: int = field(key=True)
    f0: float
    f1: float
    f2: float
    f3: float
    f4: float
    f5: float
    f6: float
    f7: float
    f8: float
    f9: float
    at: datetime


@featureset
class Driver:
    """The newest values of a driver."""

    driver: int
    f0: float | None = F(Drivers.f0)
    f1: float | None = F(Drivers.f1)
    f2: float | None = F(Drivers.f2)
    f3: float | None = F(Drivers.f3)
    f4: float | None = F(Drivers.f4)
    f5: float | None = F(Drivers.f5)
    f6: float | None = F(Drivers.f6)
    f7: float | None = F(Drivers.f7)
    f8: float | None = F(Drivers.f8)
    f9: float | None = F(Drivers.f9)


@connectors.source(webhook.endpoint("events"), disorder="14d", cdc="append")
@dataset(index=False)
class Events:
    """A value of a key at a time."""

    key: int
    value: float
    at: datetime


@dataset(index=True)
class Values:
    """Aggregates of the events in the windows before a time."""

    key: int = field(key=True)
    count_1h: int
    count_1d: int
    count_7d: int
    count_all: int
    sum_1h: float
    sum_1d: float
    sum_7d: float
    sum_all: float
    average_1h: float
    average_1d: float
    average_7d: float
    average_all: float
    stddev_1h: float
    stddev_1d: float
    stddev_7d: float
    stddev_all: float
    max_1h: float
    max_1d: float
    max_7d: float
    max_all: float
    at: datetime

    @pipeline
    @inputs(Events)
    def make(cls: Any, events: Any) -> Any:
        """Aggregate by five functions over four windows."""
        spans = {"1h": "1h", "1d": "1d", "7d": "7d", "all": "forever"}
        made = {}
        for name, span in spans.items():
            window = Continuous(span)
            made[f"count_{name}"] = Count(window=window)
            made[f"sum_{name}"] = Sum(of="value", window=window)
            made[f"average_{name}"] = Average(of="value", window=window)
            made[f"stddev_{name}"] = Stddev(of="value", window=window)
            made[f"max_{name}"] = Max(of="value", window=window, default=0.0)
        return events.groupby("key").aggregate(**made)


class Tables(ArchivedTopics):
    """Tables that have all records of their topics."""

    def __init__(self, objects: Path) -> None:
        self._objects = str(objects)

    def records(self, topic: TopicPlan, wanted: Sequence[str]) -> ArchivedRecords:
        """Return the records of a table."""
        columns = columns_of(topic.schema)
        types = {column.name: polars_type(column.dtype) for column in topic.schema.columns if column.name in wanted}
        types |= control_types(columns)
        table = ArchiveTable.existing(self._objects, topic.name)
        if table is None:
            raise FileNotFoundError(topic.name)
        files = [file for file, _ in table.files()]
        return ArchivedRecords(frame_of(files, table.options(), list(types)), columns, {})


def main() -> int:
    """Run the benchmark; return 1 if a value differs from Feast's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["versions", "windows"], default="versions")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the history")
    parser.add_argument("--asked", type=int, default=100_000, help="rows that are asked for")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--feast", action="store_true", help="ask Feast's file store the same")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="histories-") as name:
        folder = Path(name)
        report: dict[str, Any] = {"bench": "histories", "case": options.case, "cpus": os.cpu_count()}
        report |= {"rows": options.rows, "asked": options.asked, "keys": options.keys}
        wrong = 0
        if options.case == "versions":
            wrong = versions(folder, rng, options, report)
        else:
            windows(folder, rng, options, report)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 1 if wrong else 0


def versions(folder: Path, rng: np.random.Generator, options: argparse.Namespace, report: dict[str, Any]) -> int:
    """Ask for ten features, of Feast as well if that is wanted; return how many values differ."""
    values: dict[str, Any] = {"driver": rng.integers(0, options.keys, options.rows)}
    values |= {f"f{n}": rng.random(options.rows) for n in range(FEATURES)}
    times = BEGIN_US + np.sort(rng.choice(YEAR_US, options.rows, replace=False))
    topic = write(folder, [Drivers], values, times)
    asked = {"driver": rng.integers(0, options.keys, options.asked)}
    at = BEGIN_US + rng.integers(0, YEAR_US, options.asked)
    given = {"Driver.driver": asked["driver"]}
    seconds, found = timed(folder, [Drivers], [Driver], given, at=at, outputs=["Driver"], runs=options.runs)
    report |= {"seconds": min(seconds), "all_seconds": seconds, "table": topic}
    print(f"Caraway: {options.asked:,} x {options.rows:,}: best of {len(seconds)} {min(seconds):.3f} s")
    if not options.feast:
        return 0
    frame = pd.DataFrame(values | {"at": pd.to_datetime(times, unit="us", utc=True)})
    frame.to_parquet(folder / "history.parquet")
    entities = pd.DataFrame({"driver": asked["driver"], "event_timestamp": pd.to_datetime(at, unit="us", utc=True)})
    entities.to_parquet(folder / "asked.parquet")
    command = [environment() / "python", HISTORY_SCRIPT, folder, FEATURES, options.runs + 1]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Feast failed:\n{done.stdout}{done.stderr}")
    rival = json.loads(done.stdout.splitlines()[-1])[1:]
    report |= {"feast": VERSION, "feast_seconds": min(rival), "ratio": min(rival) / min(seconds)}
    answer = pd.read_parquet(folder / "answer.parquet")
    print(f"Feast {VERSION}: best of {len(rival)} {min(rival):.3f} s, {min(rival) / min(seconds):.1f} times as long")
    print(f"Feast returned {len(answer):,} of {len(entities):,} rows")
    ours = entities.assign(**{name: found[f"Driver.{name}"] for name in (f"f{n}" for n in range(FEATURES))})
    both = ours.merge(answer, on=["driver", "event_timestamp"], suffixes=("", "_feast"), how="inner")
    same = sum(
        int(((both[f"f{n}"] == both[f"f{n}_feast"]) | (both[f"f{n}"].isna() & both[f"f{n}_feast"].isna())).sum())
        for n in range(FEATURES)
    )
    wrong = FEATURES * len(both) - same
    print(f"{same:,} values of the {len(both):,} rows that both returned are the same, {wrong:,} differ")
    report |= {"feast_rows": len(answer), "differ": wrong}
    return wrong


def windows(folder: Path, rng: np.random.Generator, options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Ask for one window, and for twenty."""
    values = {
        "key": rng.integers(0, options.keys, options.rows),
        "value": np.round(rng.lognormal(3, 1, options.rows), 2),
    }
    write(folder, [Events, Values], values, BEGIN_US + np.sort(rng.integers(0, YEAR_US, options.rows)))
    asked = {"Of.key": rng.integers(0, options.keys, options.asked)}
    at = BEGIN_US + rng.integers(0, YEAR_US, options.asked)
    made = features()
    for label, names in (("one", ["Of.sum_1d"]), ("twenty", ["Of"])):
        seconds, _ = timed(folder, [Events, Values], [made], asked, at=at, outputs=names, runs=options.runs)
        count = options.asked * (1 if label == "one" else 20)
        report[f"{label}_seconds"], report[f"{label}_row_windows_per_second"] = min(seconds), count / min(seconds)
        print(f"{label}: {count:,} row-windows over {options.rows:,} events: {min(seconds):.2f} s, "
              f"{count / min(seconds):,.0f}/s")  # fmt: skip


def features() -> Featureset:
    """Return a featureset with a feature for each aggregate."""
    body: dict[str, Any] = {"__annotations__": {"key": int}, "__module__": __name__}
    for aggregate in Values.fields:
        if aggregate.name not in {"key", "at"}:
            dtype = int if aggregate.name.startswith("count") else float
            body["__annotations__"][aggregate.name] = dtype | None
            body[aggregate.name] = F(getattr(Values, aggregate.name))
    made: Featureset = featureset(type("Of", (), body))
    return made


def write(folder: Path, datasets: Sequence[Dataset], values: Mapping[str, Any], times: Any) -> str:
    """Write the records of the first dataset as the archive would have, and return the name of their topic."""
    graph = Client.build_commit("bench", datasets, []).graph
    name = datasets[0]._name  # noqa: SLF001 (the API's own attribute)
    topic = next(topic for topic in plan_graph(graph).topics if topic.dataset == name)
    columns, rows = columns_of(topic.schema), len(times)
    instants = pa.array(times).cast(pa.timestamp("us", tz="UTC"))
    numbers = np.arange(rows)
    arrays: dict[str, Any] = {key: pa.array(column) for key, column in values.items()}
    arrays |= {columns.time: instants, columns.ingested: instants, columns.op: pa.array(np.ones(rows, np.int8))}
    arrays |= {columns.partition: pa.array(np.zeros(rows, np.int32)), columns.offset: pa.array(numbers // 100)}
    arrays |= {columns.number: pa.array((numbers % 100).astype(np.int32))}
    arrays |= {columns.id: pa.nulls(rows, pa.binary()), columns.rev: pa.nulls(rows, pa.binary())}
    whole = pa.table({field.name: arrays[field.name] for field in columns.arrow}).cast(columns.arrow)
    table = ArchiveTable.opened(str(folder), topic.name, columns.arrow, dataset=name)
    for first in range(0, rows, FILE_ROWS):
        table.append(whole.slice(first, FILE_ROWS), {0: (first + FILE_ROWS) // 100})
    return topic.name


def timed(
    folder: Path,
    datasets: Sequence[Dataset],
    featuresets: Sequence[Featureset],
    asked: Mapping[str, Any],
    *,
    at: Any,
    outputs: Sequence[str],
    runs: int,
) -> tuple[list[float], pd.DataFrame]:
    """Ask for features; return the seconds of each run but the first, and the last answer."""
    graph = Client.build_commit("bench", datasets, featuresets).graph
    plan = plan_graph(graph)
    seconds = []
    frame = pd.DataFrame()
    for _ in range(runs + 1):
        started = time.perf_counter()
        with OfflineReader(Tables(folder), plan.indexes, plan.topics) as reader:
            engine = OfflineEngine(Catalog("bench", graph), reader, compile_function)
            part = InputPart({name: column.tolist() for name, column in asked.items()}, pa.table({}), times=at.tolist())
            found = evaluate(engine.plan(list(asked), outputs), part, 0)
            frame = pa.table(found.columns).to_pandas()
        seconds.append(time.perf_counter() - started)
        if any(error is not None for error in found.errors):
            raise RuntimeError(next(error for error in found.errors if error is not None))
    return seconds[1:], frame


if __name__ == "__main__":
    raise SystemExit(main())
