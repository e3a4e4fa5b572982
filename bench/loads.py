"""A history that is archived becomes an index: by tables that Spark builds, and by the thread that follows topics.

    python -m bench loads [--rows 10000000] [--keys 1000] [--sample 1000000] [--compared 500000] [--steps]

The rows are inputs of twenty aggregates (count, sum, average, stddev and max over four windows). They are written to a
table of the archive first, which isn't measured. The seconds of the load are those from the request to the end: Spark's
start, its tasks, and the database that takes the tables.

The processor time by step is measured in this process: `--sample` rows are read and divided, and the division with the
least keys is built.
The thread's cost is that of `--compared` of the same rows in the order of their topic, without reading the topic.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from histories import BEGIN_US, YEAR_US, Events, Values
from services import services

from caraway.client import Client
from caraway.dataplane.archive.store.columns import columns_of
from caraway.dataplane.archive.store.messages import encoded
from caraway.dataplane.archive.store.reading import ArchivedTopics, Part, TopicParts
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.index.feeding.consumption import BACKLOG
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import DatasetReader, IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.graph.plan.planner import plan_graph
from caraway.offline.loads.division import division_tables
from caraway.offline.loads.manifest import LoadIndex, LoadTable
from caraway.offline.queries.context import opened_context
from caraway.offline.queries.model import LoadRequest, OfflineRequest, StoredRows, folder_of
from caraway.offline.spark.loading import (
    DIVISION_RECORDS,
    divided_records,
    divisions_for,
    parts_of,
    sampled_bounds,
    tables_on_spark,
)
from caraway.offline.spark.pieces import as_batch, of_batches
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.settings import PostgresSettings, Settings
from caraway.state.database import connect
from caraway.state.migrate import migrate
from caraway.state.plans import Planned

FILE_ROWS = 1_000_000
# The records of a message.
BLOCK = 100
QUERY = "load-bench"


def main() -> int:
    """Run the benchmark; return 1 if the loaded index answers otherwise than the followed one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--sample", type=int, default=1_000_000, help="rows whose steps are measured one by one")
    parser.add_argument("--compared", type=int, default=500_000, help="rows that the index thread applies")
    parser.add_argument("--steps", action="store_true", help="measure the steps only, without Spark")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    report: dict[str, Any] = {"bench": "loads", "cpus": os.cpu_count(), "rows": options.rows, "keys": options.keys}
    graph = Client.build_commit("bench", [Events, Values], []).graph
    plans = plan_graph(graph)
    plan = next(index for index in plans.indexes if index.dataset == "Values")
    topic = next(topic for topic in plans.topics if topic.name == plan.topic)
    if options.steps:
        with tempfile.TemporaryDirectory(prefix="loads-") as name:
            index = archived(name, plan, topic, options)
            source = ArchivedTopics("", name, {})
            report |= steps(source, index, options.sample) | compared(source, index, options.compared)
    else:
        report |= whole(Planned(graph=graph, plan=plans), plan, topic, options)
    for name, value in report.items():
        print(f"{name}: {value:,.2f}" if isinstance(value, float) else f"{name}: {value}")
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 1 if report.get("differing") else 0


def whole(planned: Planned, plan: IndexPlan, topic: TopicPlan, options: argparse.Namespace) -> dict[str, Any]:
    """Load the index through Spark, and return all figures."""
    report: dict[str, Any] = {}
    with services("loads", "", "") as (folder, kafka, postgres):
        settings = Settings(
            data_dir=folder / "data",
            kafka=KafkaSettings(bootstrap_servers=kafka),
            postgres=PostgresSettings(url=postgres),
            objects=str(folder / "objects"),
        )
        # The processes of Spark's tasks have their settings from there.
        os.environ.update(settings.environment())
        migrate(postgres)
        index = archived(settings.objects_url, plan, topic, options)
        source = ArchivedTopics(kafka, settings.objects_url, {})
        request = OfflineRequest(inputs=(), outputs=(), timestamp_column="", rows=StoredRows(""), load=index.load)
        cuts = {topic.name: dict(index.found.ends)}
        started = time.perf_counter()
        with opened_context(settings, connect(postgres), planned, request, "bench", cuts=cuts) as context:
            tables = tables_on_spark(settings, context, QUERY, index, lambda: False)
        if tables is None:
            raise RuntimeError("nobody interrupts the work")
        report["built_seconds"] = time.perf_counter() - started
        report |= {"tables": len(tables), "table_bytes": sum(table.bytes for table in tables)}
        with IndexStore(folder / "index") as store:
            report["taken_seconds"] = taken(store, index, tables, ObjectFolder(settings.objects_url))
            report["seconds"] = time.perf_counter() - started
            report["tables_by_level"] = levels(store)
            report |= steps(source, index, options.sample) | compared(source, index, options.compared)
            report["differing"] = differing(source, index, store, folder)
    return report


def archived(objects: str, plan: IndexPlan, topic: TopicPlan, options: argparse.Namespace) -> LoadIndex:
    """Write the table of the topic, and return the index that is built from it."""
    rng = np.random.default_rng(7)
    columns = columns_of(topic.schema)
    table = ArchiveTable.opened(objects, topic.name, columns.arrow, dataset=topic.dataset)
    for first in range(0, options.rows, FILE_ROWS):
        count = min(FILE_ROWS, options.rows - first)
        numbers = np.arange(first, first + count)
        share = YEAR_US // max(options.rows // FILE_ROWS, 1)
        times = BEGIN_US + share * (first // FILE_ROWS) + np.sort(rng.integers(0, share, count))
        instants = pa.array(times).cast(pa.timestamp("us", tz="UTC"))
        identities = np.zeros(count, np.dtype([("offset", ">u8"), ("place", ">u4")]))
        identities["offset"] = numbers
        fixed = pa.Array.from_buffers(pa.binary(12), count, [None, pa.py_buffer(identities)])
        arrays: dict[str, Any] = {
            "key": pa.array(rng.integers(0, options.keys, count)),
            "value": pa.array(np.round(rng.lognormal(3, 1, count), 2)),
            columns.time: instants,
            columns.ingested: instants,
            columns.op: pa.array(np.ones(count, np.int8)),
            columns.partition: pa.array(np.zeros(count, np.int32)),
            columns.offset: pa.array(numbers // BLOCK),
            columns.number: pa.array((numbers % BLOCK).astype(np.int32)),
            columns.id: fixed.cast(pa.binary()),
            columns.rev: pa.nulls(count, pa.binary()),
        }
        rows = pa.table({field.name: arrays[field.name] for field in columns.arrow}).cast(columns.arrow)
        table.append(rows, {0: (first + count) // BLOCK})
    end = options.rows // BLOCK
    parts = tuple(Part((file,), rows) for file, rows in table.files())
    found = TopicParts(parts, table.options(), {0: end}, {0: end}, {0: 0})
    return LoadIndex(load=LoadRequest(asset=plan.asset.hex()), plan=plan, topic=topic, found=found)


def taken(store: IndexStore, index: LoadIndex, tables: list[LoadTable], objects: ObjectFolder) -> float:
    """Have a database take the tables; return the seconds for which RocksDB took them, and print those of the rest."""
    started = time.perf_counter()
    folder = store.begin_load()
    paths = [folder / f"{number}.sst" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        if objects.fetch(f"{folder_of(QUERY)}/{table.name}", path) != table.digest:
            raise RuntimeError(f"{table.name} is damaged")
    fetched = time.perf_counter()
    store.load(index.plan.asset, paths, dict(index.found.ends))
    print(f"fetched in {fetched - started:.2f} s, taken in {time.perf_counter() - fetched:.2f} s")
    return time.perf_counter() - fetched


def levels(store: IndexStore) -> dict[int, int]:
    """Return how many tables are on each level of the database."""
    found: dict[int, int] = {}
    for table in store.db.live_files():
        found[int(table["level"])] = found.get(int(table["level"]), 0) + 1
    return found


def steps(source: ArchivedTopics, index: LoadIndex, rows: int) -> dict[str, float]:
    """Return the processor time of the steps for a record, in microseconds."""
    parts = parts_of(index)
    bounds = sampled_bounds(source, index, parts, divisions_for(max(index.found.rows, DIVISION_RECORDS), 1))
    begun = divided = time.process_time()
    division: list[pa.RecordBatch] = []
    read = built = 0
    for part in parts:
        batches = [as_batch(piece) for piece in divided_records(source, index, part, bounds)]
        if read < rows:
            read += part.rows
            divided = time.process_time()
        # The records of the other parts are read for the one division that is built.
        division += [batch for batch in batches if batch.column("division")[0].as_py() == 0]
    gathered = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        frames = (piece.frame for piece in of_batches(iter(division)))
        for table in division_tables(index.plan, index.topic, frames, folder=Path(folder), erased=ErasedKeys(dict)):
            built += table.records
    done = time.process_time()
    return {
        "divide_us": (divided - begun) / read * 1e6,
        "build_us": (done - gathered) / built * 1e6,
        "load_us": (divided - begun) / read * 1e6 + (done - gathered) / built * 1e6,
        "built_records": float(built),
    }


def in_order(source: ArchivedTopics, index: LoadIndex, rows: int) -> pl.DataFrame:
    """Return the first records of the topic."""
    names = [column.name for column in index.plan.schema.columns]
    return source.read(index.topic, index.found, parts_of(index)[0], names).head(rows)


def batches_of(index: LoadIndex, rows: pl.DataFrame) -> Iterator[list[Any]]:
    """Yield messages in batches as the thread for backlogs reads them."""
    messages = encoded(index.topic.schema, columns_of(index.topic.schema), rows)
    while batch := list(islice(messages, BACKLOG.batch)):
        yield batch


def compared(source: ArchivedTopics, index: LoadIndex, rows: int) -> dict[str, float]:
    """Return what the index thread takes for a record, in microseconds of processor time."""
    frame = in_order(source, index, rows)
    batches = list(batches_of(index, frame))
    with tempfile.TemporaryDirectory() as folder, IndexStore(Path(folder) / "index") as store:
        writer = IndexWriter(store)
        begun = time.process_time()
        for batch in batches:
            writer.apply(index.plan, batch)
        return {"thread_us": (time.process_time() - begun) / frame.height * 1e6}


def differing(source: ArchivedTopics, index: LoadIndex, store: IndexStore, folder: Path) -> int:
    """Return how many answers of the loaded index differ from those of one to which the records are written."""
    names = [column.name for column in index.plan.schema.columns]
    asked = list(range(20))
    of_asked = pl.col("key").is_in(asked)
    rows = pl.concat(source.read(index.topic, index.found, part, names).filter(of_asked) for part in parts_of(index))
    columns = [field.name for field in index.plan.fields]
    with IndexStore(folder / "written") as written:
        writer = IndexWriter(written)
        for batch in batches_of(index, rows):
            writer.apply(index.plan, batch)
        wrong = 0
        for at_us in (BEGIN_US + YEAR_US // 3, BEGIN_US + YEAR_US, BEGIN_US + 2 * YEAR_US):
            answers = [
                DatasetReader(IndexReader(each), [index.plan]).read("Values", [(key,) for key in asked], at_us, columns)
                for each in (store, written)
            ]
            one, other = (list(zip(*values, found, strict=True)) for values, found in answers)
            wrong += sum(repr(a) != repr(b) for a, b in zip(one, other, strict=True))
    print(f"{len(asked)} keys with {rows.height:,} records at three times: {wrong} differ")
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
