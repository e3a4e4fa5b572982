"""Processor time to find the rows that a commit of an Iceberg table has changed, if it has written whole files anew.

    python -m bench sources_rewrites [--rows 500000] [--rounds 3] [--json FILE]

A table of payments with keys has one file. A commit changes one row in a hundred, for which `pyiceberg` writes the
other rows anew (copy-on-write). The reader, which needs no server for this, finds the changes; beside it stands
`pyiceberg` alone, which reads the table before and after the commit to Arrow's columns. Rows count twice, since they
are in the old file and in the new one. The best of several rounds counts.
"""

import argparse
import json
import platform
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyiceberg.expressions import In
from rich.table import Table
from sources_files import BEGIN_US, ICEBERG_TABLE, iceberg_catalog, reader_of

from caraway.apps.cli.output import out
from caraway.dataplane.sources.reader import Position
from caraway.dataplane.sources.worker import POLL_BYTES, POLL_ROWS
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING
from caraway.graph.connectors import FilesConnector
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from caraway.graph.systems import FilesSystem

# One row in so many is changed.
CHANGED = 100


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    rows: int = options.rows
    with TemporaryDirectory() as name:
        folder = Path(name)
        before = make_table(folder, rows)
        position = read(folder, None, rows)
        changes = change_table(folder, rows)
        best = {
            "alone": min(processor_s(lambda: read_alone(folder, before)) for _ in range(options.rounds)),
            "reader": min(processor_s(lambda: read(folder, position, changes)) for _ in range(options.rounds)),
        }
    figures = {name: 1e6 * seconds / (2 * rows) for name, seconds in best.items()}
    table = Table(title=f"{changes:,} changes in two files of {rows:,} rows: microseconds of processor time a row")
    for heading in figures:
        table.add_column(heading, justify="right")
    table.add_row(*(f"{figure:.2f}" for figure in figures.values()))
    out.print(table)
    report = {"bench": "sources_rewrites", "rows": rows, "figures": figures, "python": platform.python_version()}
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


def make_table(folder: Path, rows: int) -> int:
    """Write the table, and return the id of its snapshot."""
    catalog = iceberg_catalog(folder)
    catalog.create_namespace("db")
    made = payments(range(rows), random.Random(7))
    table = catalog.create_table(ICEBERG_TABLE, made.schema)
    table.append(made)
    snapshot = table.current_snapshot()
    assert snapshot is not None  # noqa: S101 (written above)
    return snapshot.snapshot_id


def change_table(folder: Path, rows: int) -> int:
    """Change some rows in a transaction, and return how many changes a reader sees."""
    changed = range(0, rows, CHANGED)
    made = payments(changed, random.Random(8))
    iceberg_catalog(folder).load_table(ICEBERG_TABLE).overwrite(made, overwrite_filter=In("payment", set(changed)))
    # An old row whose key has a new one isn't shown.
    return len(changed)


def payments(numbers: range, chance: random.Random) -> pa.Table:
    """Return some payments."""
    return pa.table(
        {
            "payment": list(numbers),
            "shop": [chance.randrange(1_000) for _ in numbers],
            "amount": [chance.random() * 1_000 for _ in numbers],
            "currency": [chance.choice(("EUR", "USD", "GBP")) for _ in numbers],
            "at": pa.array([BEGIN_US + n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


def processor_s(act: Callable[[], object]) -> float:
    """Return the processor time of something, of all threads of this process."""
    begun = time.process_time()
    act()
    return time.process_time() - begun


def read_alone(folder: Path, before: int) -> None:
    """Read the table before and after the commit."""
    table = iceberg_catalog(folder).load_table(ICEBERG_TABLE)
    table.scan(snapshot_id=before).to_arrow()
    table.scan().to_arrow()


def read(folder: Path, position: Position | None, count: int) -> Position:
    """Read so many rows from a position on, and return the one behind them."""
    fields = {"payment": INT, "shop": INT, "amount": FLOAT, "currency": STRING, "at": DATETIME}
    dataset = DatasetSpec(
        name="Payments",
        version=1,
        history_us=0,
        fields=tuple(
            FieldSpec(name=name, dtype=dtype, key=name == "payment", timestamp=name == "at")
            for name, dtype in fields.items()
        ),
        index=None,
    )
    connector = FilesConnector(
        system=FilesSystem(name="bench"), container=str(folder / "iceberg"), prefix="db/payments", format="iceberg"
    )
    source = SourceSpec(connector=connector, cdc=Cdc.NATIVE, disorder_us=0, every_us=1)
    plan = plan_graph(Graph(datasets=(replace(dataset, sources=(source,)),))).ingests[0]
    reader = reader_of(folder, plan)
    reader.seek(position or {}, {})
    found = 0
    while found < count:
        batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=1)
        if batch is not None:
            found += len(batch.rows)
            position = batch.position
    reader.close()
    assert found == count, (found, count)  # noqa: S101 (there are no other rows)
    assert position is not None  # noqa: S101 (a batch was read)
    return position


if __name__ == "__main__":
    main()
