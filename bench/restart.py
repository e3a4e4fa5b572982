"""Restart: seconds until an index with many keys answers again after a kill, and after its loss, from a snapshot.

    python -m bench restart [--keys 10000000] [--json FILE]

The index has the versions of a keyed dataset, one for each key. A copy of its files without closing it is what a kill
leaves. The snapshot is taken into a folder, as into an object store, and restored from there; with its digests each
byte is read twice. The first answer is that of one key. How long a job with as many keys in its state needs is measured
by `operators --only join --loaded --rows 1000 --keys N`.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from index import SCHEMA, START_US, plan
from reports import publish
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.snapshots import Snapshots
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexKind

BATCH = 30_000
CODEC = RecordCodec(SCHEMA)
INDEX = plan(IndexKind.VERSIONS)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="caraway-bench-") as name:
        folder = Path(name)
        seconds = measured(folder, options.keys)
        size = sum(path.stat().st_size for path in (folder / "restored").iterdir())
    report = {
        "bench": "restart",
        "keys": options.keys,
        "bytes": size,
        "seconds": seconds,
    }
    table = Table("", "seconds", title=f"An index with {options.keys:,} keys, {size / (1 << 20):,.0f} MiB")
    for step, value in seconds.items():
        table.add_row(step, f"{value:.2f}")
    out.print(table)
    publish(report, options.json)
    return 0


def measured(folder: Path, keys: int) -> dict[str, float]:
    """Return the seconds of each step."""
    seconds = {}
    with IndexStore(folder / "index") as store:
        writer = IndexWriter(store)
        started = time.perf_counter()
        for first in range(0, keys, BATCH):
            writer.apply(INDEX, [message(number) for number in range(first, min(first + BATCH, keys))])
        seconds["write all keys, one after the other"] = time.perf_counter() - started
        shutil.copytree(folder / "index", folder / "killed", ignore=shutil.ignore_patterns("LOCK"))
        objects = ObjectFolder(str(folder / "objects"))
        started = time.perf_counter()
        Snapshots(objects).take(store)
        seconds["take a snapshot"] = time.perf_counter() - started
        wanted = store.format
    seconds["open after a kill, and answer"] = opened(folder / "killed", keys)
    started = time.perf_counter()
    if Snapshots(objects).restore(folder / "restored", wanted) is None:
        raise SystemExit("the snapshot can't be restored")
    seconds["restore from the snapshot"] = time.perf_counter() - started
    seconds["open what was restored, and answer"] = opened(folder / "restored", keys)
    return seconds


def opened(folder: Path, keys: int) -> float:
    """Open a database; return the seconds until the version of a key was read."""
    number = keys // 2
    started = time.perf_counter()
    with IndexStore(folder) as store:
        key = CODEC.encode_key([f"key{number}"])
        rows = IndexReader(store).read(INDEX, [key], START_US + keys, ["n"])
        seconds = time.perf_counter() - started
    if rows[0] is None:
        raise SystemExit(f"the key {number} isn't there")
    return seconds


def message(number: int) -> Message:
    """Return the record of a key."""
    value = CODEC.encode_value(
        op=PUT,
        time_us=START_US + number,
        ingested_us=START_US,
        record_id=position_id(number, 0),
        row=[f"key{number}", number / 8, number % 100],
    )
    return CODEC.encode_key([f"key{number}"]), value, 0, number


if __name__ == "__main__":
    sys.exit(main())
