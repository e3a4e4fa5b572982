"""Rows a second that one server reads from files, from the store to durable in Kafka, beside pyarrow alone.

    python -m bench sources_files [--rows 1000000] [--formats parquet,csv,json,iceberg,delta] [--kafka host:port]
        [--postgres URL] [--json FILE]

Rows are payments of five columns: two integers, a number, a text and an instant. They are in eight files of a local
folder, in each format, or in a table of eight commits (of one for `hudi`, whose own writer is fetched for it), and are
read by a worker as servers run it, with checkpoints in Postgres. Beside it stands the library alone, which reads the
same files to Arrow's columns: pyarrow, and pyiceberg, deltalake or hudi for tables; for JSON, orjson makes objects.
The figures in between are those of the reader without writes.
The processor time is that of this process, which sends the rows too, but isn't the broker.
"""

import argparse
import json
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from hudi import HudiTableBuilder
from pyarrow import csv
from pyiceberg.catalog.sql import SqlCatalog
from rich.table import Table
from services import services

from caraway.apps.cli.output import out
from caraway.dataplane.ingest.delivery import SLICE, Deliverer
from caraway.dataplane.ingest.marks import Marks
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.reader import OpenReader, SourceContext, SourceReader
from caraway.dataplane.sources.topics import SourceTopics
from caraway.dataplane.sources.worker import POLL_BYTES, POLL_ROWS, WRITE_S, SourceWorker
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING
from caraway.graph.connectors import FilesConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from caraway.graph.systems import CSVFormat, FilesSystem
from caraway.state.database import connect
from caraway.state.migrate import migrate
from caraway.state.ownership.leases import HeldLease, Lease
from tests.services.hudi import running_hudi

FILES = 8
PARTITIONS = 4
BEGIN_US = 1_767_225_600_000_000
FORMATS: dict[str, str | CSVFormat] = {"csv": CSVFormat()}
# The formats that are tables. Delta's are read by their change feed.
TABLES = {"iceberg": Cdc.APPEND, "delta": Cdc.NATIVE, "hudi": Cdc.APPEND}
PLAIN = ("parquet", "csv", "json")
ICEBERG_TABLE = "db.payments"
PAYMENTS = DatasetSpec(
    name="Payments",
    version=1,
    history_us=0,
    fields=(
        FieldSpec(name="account", dtype=INT),
        FieldSpec(name="shop", dtype=INT),
        FieldSpec(name="amount", dtype=FLOAT),
        FieldSpec(name="currency", dtype=STRING),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    ),
    index=None,
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", type=lambda text: text.split(","), default=[*PLAIN, "iceberg", "delta"])
    parser.add_argument("--kafka", default="", help="a broker that runs already, host:port")
    parser.add_argument("--postgres", default="", help="the address of a database that is there already")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    rows: int = options.rows
    figures: dict[str, dict[str, float]] = {}
    with services("sources-files", options.kafka, options.postgres) as (folder, broker, postgres):
        migrate(postgres)
        make_files(folder, rows, options.formats)
        for name in options.formats:
            taken, processor = durable_s(folder, name, rows, broker, postgres)
            figures[name] = {
                "alone": rows / seconds(lambda name=name: read_alone(folder, name)),  # type: ignore[misc]
                "without_writes": rows / seconds(lambda name=name: convert(folder, name, rows)),  # type: ignore[misc]
                "durable": rows / taken,
                "processor_us": 1e6 * processor / rows,
            }
    table = Table(title=f"Rows a second of {rows:,} rows in {FILES} files")
    for heading in ("format", "the library alone", "read and encoded", "durable in Kafka", "processor us a row"):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    for name, figure in figures.items():
        rates = [f"{figure[part]:,.0f}" for part in ("alone", "without_writes", "durable")]
        table.add_row(name, *rates, f"{figure['processor_us']:.1f}")
    out.print(table)
    report = {"bench": "sources_files", "rows": rows, "figures": figures, "python": platform.python_version()}
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


def make_files(folder: Path, rows: int, formats: Sequence[str]) -> None:
    """Write the files of all formats."""
    chance = random.Random(7)
    for name in (*PLAIN, *TABLES):
        (folder / name).mkdir()
    catalog = iceberg_catalog(folder)
    catalog.create_namespace("db")
    for number in range(FILES):
        count = rows * (number + 1) // FILES - rows * number // FILES
        table = pa.table(
            {
                "account": [chance.randrange(100_000) for _ in range(count)],
                "shop": [chance.randrange(1_000) for _ in range(count)],
                "amount": [chance.random() * 1_000 for _ in range(count)],
                "currency": [chance.choice(("EUR", "USD", "GBP")) for _ in range(count)],
                "at": pa.array([BEGIN_US + n * 1_000_000 for n in range(count)], pa.timestamp("us", "UTC")),
            }
        )
        catalog.create_table_if_not_exists(ICEBERG_TABLE, table.schema).append(table)
        write_deltalake(folder / "delta", table, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
        pq.write_table(table, folder / "parquet" / f"{number}.parquet")
        csv.write_csv(table, folder / "csv" / f"{number}.csv")
        with (folder / "json" / f"{number}.json").open("wb") as file:
            file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in table.to_pylist())
    if "hudi" in formats:
        with running_hudi(folder) as hudi:
            hudi.sql(
                f"CREATE TABLE payments USING hudi LOCATION '{folder / 'hudi'}' "  # noqa: S608 (paths of the benchmark)
                f"TBLPROPERTIES ('hoodie.metadata.enable' = 'false') AS SELECT * FROM parquet.`{folder / 'parquet'}`"
            )


def iceberg_catalog(folder: Path) -> SqlCatalog:
    """Return the catalog of the Iceberg table, which only its writer needs."""
    return SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/iceberg")


def seconds(act: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def read_alone(folder: Path, name: str) -> None:
    """Read all files by the library alone."""
    match name:
        case "iceberg":
            iceberg_catalog(folder).load_table(ICEBERG_TABLE).scan().to_arrow()
            return
        case "delta":
            DeltaTable(folder / name).to_pyarrow_table()
            return
        case "hudi":
            HudiTableBuilder.from_base_uri(str(folder / name)).build().read()
            return
    for path in sorted((folder / name).iterdir()):
        match name:
            case "parquet":
                pq.read_table(path)
            case "csv":
                csv.read_csv(path)
            case _:
                with path.open("rb") as file:
                    for line in file:
                        orjson.loads(line)


def plan_of(folder: Path, name: str) -> IngestPlan:
    """Return the plan of the dataset over the files of a format."""
    connector = FilesConnector(
        system=FilesSystem(name="bench"),
        container=str(folder / name),
        prefix="db/payments" if name == "iceberg" else "",
        format=FORMATS.get(name, name),
    )
    source = SourceSpec(connector=connector, cdc=TABLES.get(name, Cdc.APPEND), disorder_us=0)
    return plan_graph(Graph(datasets=(replace(PAYMENTS, sources=(source,)),))).ingests[0]


def reader_of(folder: Path, plan: IngestPlan) -> SourceReader:
    """Return a reader of the files."""
    connector = plan.source.connector
    assert isinstance(connector, FilesConnector)  # noqa: S101 (made above)
    columns = Target(plan).columns
    context = SourceContext(
        name=f"bench-{time.time_ns()}",
        source=plan.source,
        dataset=plan.dataset,
        columns=columns,
        resolve=str,
        local_folders=(str(folder),),
    )
    return cast("OpenReader", resolve_name(connector.reader_class))(connector, context)


def convert(folder: Path, name: str, rows: int) -> None:
    """Read all files and make the messages, without sending them."""
    plan = plan_of(folder, name)
    target, reader = Target(plan), reader_of(folder, plan)
    reader.seek({}, {})
    done = 0
    while done < rows:
        batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=1)
        assert batch is not None  # noqa: S101 (the files are there)
        marks = Marks(header="h", key="bench", mark=batch.mark, run=batch.run)
        deliverer = Deliverer([target], batch.rows, origin=batch.origin, erased=ErasedKeys(dict), marks=marks)
        for start in range(0, len(batch.rows), SLICE):
            deliverer.deliver(target, start, min(start + SLICE, len(batch.rows)), time.time_ns() // 1000)
        done += len(batch.rows)


def durable_s(folder: Path, name: str, rows: int, broker: str, postgres: str) -> tuple[float, float]:
    """Return the seconds that a worker takes for all rows, and the processor time of this process meanwhile."""
    plan = plan_of(folder, name)
    target = Target(plan)
    ensure_topics(broker, [target.topic, DEAD_LETTERS], PARTITIONS)
    engine = connect(postgres)
    source = f"bench-{name}-{time.time_ns()}"
    writer = TopicWriter(broker, timeout_s=WRITE_S)
    worker = SourceWorker(
        source,
        target,
        connect=lambda: reader_of(folder, plan),
        right=HeldLease(Lease(engine=engine, name=source, owner="bench"), timedelta(seconds=30), renew_s=3),
        positions=SourcePositions(engine),
        topics=SourceTopics(broker),
        writer=writer,
        erased=ErasedKeys(dict),
    )
    # The first step connects to everything.
    worker.step()
    already = worker.rows
    begun, processor = time.perf_counter(), time.process_time()
    while worker.rows < rows:
        worker.step()
    taken, processor = time.perf_counter() - begun, time.process_time() - processor
    worker.stop()
    writer.close()
    engine.dispose()
    share = rows / (rows - already)
    return taken * share, processor * share


if __name__ == "__main__":
    main()
