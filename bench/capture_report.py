"""The parts that the benchmarks of change capture share: the dataset, the reading, and the report."""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from caraway.apps.cli.output import out
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING
from caraway.graph.connectors import CaptureConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec

POLL_ROWS, POLL_BYTES = 10_000, 4 * 1024 * 1024


def options_of(description: str | None, rows: int) -> argparse.Namespace:
    """Return the options of a benchmark, whose `rows` are so many by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    return parser.parse_args()


def sales(connector: CaptureConnector) -> DatasetSpec:
    """Return the dataset of the table."""
    return DatasetSpec(
        name="Sales",
        version=1,
        history_us=0,
        fields=(
            FieldSpec(name="id", dtype=INT, key=True),
            FieldSpec(name="customer", dtype=STRING),
            FieldSpec(name="item", dtype=STRING),
            FieldSpec(name="amount", dtype=FLOAT),
            FieldSpec(name="at", dtype=DATETIME, timestamp=True),
        ),
        index=None,
        sources=(SourceSpec(connector=connector, cdc=Cdc.NATIVE, disorder_us=0),),
    )


def read(reader: CaptureReader, target: Target | None, count: int) -> None:
    """Read so many rows, and convert them if there is a target."""
    rows = 0
    while rows < count:
        batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=1.0)
        if batch is None:
            continue
        rows += len(batch.rows)
        if target is not None and target.encode(batch.rows, 0, len(batch.rows), 0).errors:
            raise ValueError("a row doesn't fit the dataset")


def report(
    bench: str, rates_name: str, alone: str, found: Mapping[str, Mapping[str, float]], options: argparse.Namespace
) -> None:
    """Print the rates of the library alone, of the reader, and with the conversion; write them if that is wanted."""
    made = {
        "bench": bench,
        "rows": options.rows,
        rates_name: found,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    table = Table("what", alone, "reader", "share", "with conversion", "share")
    for name, rates in found.items():
        library = rates["alone"]
        shares = [f"{rates['reader']:,.0f}", f"{rates['reader'] / library:.2f}"]
        shares += [f"{rates['converted']:,.0f}", f"{rates['converted'] / library:.2f}"]
        table.add_row(name, f"{library:,.0f}", *shares)
    out.print(table)
    print(json.dumps(made))
    if options.json:
        options.json.write_text(json.dumps(made, indent=2))
