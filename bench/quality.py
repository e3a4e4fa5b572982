"""Expectations: the processor time of checking rows, beside that of the write path up to the topic.

    python -m bench quality [--rows 200000] [--repeats 3] [--json FILE]

The rows have six fields and no keys, and come in blocks of 100, as those of a source do. The write path is the server's
own code that parses their JSON, casts and encodes them; Kafka, the index and jobs come on top (`bench ingest`). The
checks are six, of which one is a regular expression. `read` is the decoding of records, `checks` is their check and
`profiles` are the profiles of five fields and of the delay, by the hour. On topics
that jobs write, records may come again: `seen` is the look whether they did, in a file, on a topic whose records are
never revised and on one whose records are.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.client import arguments
from caraway.compute.expectations.counts import by_window
from caraway.compute.expectations.suite import CompiledSuite
from caraway.connectors import Webhook, source
from caraway.dataplane.ingest.table import RowTable
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.blocks import block_of, blocks_of
from caraway.dataplane.topics.identity import position_id
from caraway.datasets import dataset
from caraway.dtypes.instants import instant_us
from caraway.graph.plan.planner import plan_graph
from caraway.lib import (
    Drift,
    expect_column_pair_values_A_to_be_greater_than_B,
    expect_column_values_to_be_between,
    expect_column_values_to_be_in_set,
    expect_column_values_to_match_regex,
    expect_column_values_to_not_be_null,
    expectations,
    meta,
)
from caraway.offline.monitoring.quality.deltas import DeltaReader
from caraway.offline.monitoring.quality.profiling import RowProfiles
from caraway.offline.monitoring.quality.seen import SeenRecords
from caraway.process.collector import collect_rarely

__owner__ = "bench@example.com"
BATCH = 1_000
AT = datetime(2026, 5, 1, tzinfo=UTC)


@meta(drift=Drift())
@source(Webhook(name="bench").endpoint("sales"), disorder="1d", cdc="append")
@dataset
class Sales:
    """Sales with six fields."""

    shop: int
    item: str
    price: float
    cost: float
    country: str
    at: datetime

    @expectations
    def sane(cls) -> Any:
        """Return six checks."""
        return [
            expect_column_values_to_not_be_null("item"),
            expect_column_values_to_be_between("price", 0, 1_000),
            expect_column_values_to_be_between("shop", 0, 10_000),
            expect_column_values_to_be_in_set("country", ["ch", "de", "at", "fr"], mostly=0.9),
            expect_column_pair_values_A_to_be_greater_than_B("price", "cost"),
            expect_column_values_to_match_regex("item", "^[a-z]+-[0-9]+$"),
        ]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    # The server and the process that checks rows do the same.
    collect_rarely()
    plan = plan_graph(arguments.gather([Sales], ()))
    (ingest,), (check,) = plan.ingests, plan.checks
    bodies = [orjson.dumps(batch) for batch in batches(options.rows)]
    target = Target(ingest)
    messages: list[Any] = []

    def write() -> None:
        messages.clear()
        for body in bodies:
            table = RowTable(orjson.loads(body), {})
            values = [value for _, _, _, value in target.encode(table, 0, BATCH, 0).records]
            messages.extend(
                (None, block_of(values[part]), 0, len(messages) + n) for n, part in enumerate(blocks_of(values))
            )

    reader = DeltaReader(check, None)
    suite = CompiledSuite(check.suite, {field.name: field.dtype for field in check.dataset.fields})
    found: dict[str, list[float]] = {"write path": [], "read": [], "checks": [], "profiles": []}
    for _ in range(options.repeats):
        found["write path"].append(timed(write) / options.rows * 1e6)
        read = checked = profiled = 0.0
        profiles = RowProfiles(check, 8 * 86_400)
        # The process reads up to 10,000 rows at once, and forgets them before the next ones.
        for first in range(0, len(messages), 100):
            begin = time.process_time()
            deltas = reader.deltas(messages[first : first + 100], {})
            middle = time.process_time()
            results = suite.check(deltas.columns(suite.columns), len(deltas.rows))
            by_window(results, np.array(deltas.times_us, np.int64))
            end = time.process_time()
            profiles.add(deltas, instant_us(datetime.now(UTC)))
            read, checked = read + middle - begin, checked + end - middle
            profiled += time.process_time() - end
        found["read"].append(read / options.rows * 1e6)
        found["checks"].append(checked / options.rows * 1e6)
        found["profiles"].append(profiled / options.rows * 1e6)
        for name, revised in (("seen", False), ("seen, revised", True)):
            found.setdefault(name, []).append(seen(options.rows, revised=revised) / options.rows * 1e6)
    table = Table("part", "µs of processor time per row")
    for name, times in found.items():
        table.add_row(name, f"{statistics.median(times):.2f}")
    out.print(table)
    figures = {
        "bench": "quality",
        "rows": options.rows,
        "us_per_row": {n: statistics.median(t) for n, t in found.items()},
    }
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures))
    return 0


def seen(rows: int, *, revised: bool) -> float:
    """Return the processor time in seconds of looking whether the records of blocks came already."""
    chance = random.Random(7)
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        known = SeenRecords(Path(folder) / "seen.db", revised=revised)
        for first in range(0, rows, 10_000):
            ids = (position_id(n // 100, 0, n % 100) for n in range(first, min(first + 10_000, rows)))
            entries = [(chance.randrange(4), one, b"", b"12345678") for one in ids]
            begin = time.process_time()
            known.add(entries)
            known.commit({})
            total += time.process_time() - begin
        known.close()
    return total


def batches(rows: int) -> list[list[dict[str, Any]]]:
    """Return rows in batches, with many different items."""
    chance = random.Random(7)
    return [[sale(chance) for _ in range(BATCH)] for _ in range(rows // BATCH)]


def sale(chance: random.Random) -> dict[str, Any]:
    """Return a row of one of a million items."""
    return {
        "shop": chance.randrange(10_000),
        "item": f"item-{chance.randrange(1_000_000)}",
        "price": round(500 + chance.random() * 500, 2),
        "cost": round(chance.random() * 500, 2),
        "country": chance.choice(["ch", "de", "at", "fr", "us"]),
        "at": AT.isoformat(),
    }


def timed(part: Callable[[], None]) -> float:
    """Return the processor time in seconds of a call, with all threads of this process."""
    begin = time.process_time()
    part()
    return time.process_time() - begin


if __name__ == "__main__":
    raise SystemExit(main())
