"""The least that each stage of the write path costs for a record, without what Caraway does around it.

    python -m bench floors [--records 200000] [--kafka host:port] [--json FILE]

The stages: decoding the JSON of a request, encoding a record, sending records to a broker until they are durable,
reading them back, decoding a record, and writing its raw entry to RocksDB. Records are payments of some 60 bytes. A
"block" is one Kafka record with the bytes of 100 records, which shows what the number of Kafka records costs, rather
than their bytes. Each stage runs three times; the best counts. The processor time of a stage with the broker includes
the broker's.
"""

import argparse
import json
import os
import platform
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import psutil
from confluent_kafka import TopicPartition
from processor_times import processor_seconds
from rich.table import Table
from services import services

from caraway.apps.cli.output import out
from caraway.dataplane.index.feeding.consumption import BACKLOG
from caraway.dataplane.index.storage.keys import RAW, key_prefix, timed_key
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dataplane.topics.reader import connect
from caraway.dtypes.types import FLOAT, INT
from caraway.graph.plan.model import Column, RecordSchema

ACCOUNT = Column(name="account", dtype=INT)
SCHEMA = RecordSchema(
    keys=(ACCOUNT,), columns=(ACCOUNT, Column(name="amount", dtype=FLOAT)), timestamp="at", fingerprint=1
)
CODEC = RecordCodec(SCHEMA)
ROUNDS = 3
REQUEST, WRITE, BLOCK, RAW_BATCH = 1000, 1000, 100, 10_000
TIMEOUT_S = 60.0
BEGIN_US = 1_767_225_600_000_000

# The seconds that pass in a stage, and the processor seconds of all processes.
Cost = tuple[float, float]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kafka", default="", help="a broker that runs already, host:port")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    count: int = options.records
    with services("floors", options.kafka, "not used") as (folder, broker, _):
        costs = measure(count, broker, folder)
    figures = {
        name: {"us": 1e6 * seconds / count, "processor_us": 1e6 * processor / count}
        for name, (seconds, processor) in costs.items()
    }
    table = Table(title=f"The least cost of a record in microseconds, of {count:,} records")
    for heading, side in (("stage", "left"), ("us", "right"), ("of both cores", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]  # one of rich's literals
    for name, figure in figures.items():
        table.add_row(name, f"{figure['us']:.2f}", f"{figure['processor_us']:.2f}")
    out.print(table)
    report = {"bench": "floors", "records": count, "figures": figures, "python": platform.python_version()}
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


def measure(count: int, broker: str, folder: Path) -> dict[str, Cost]:
    """Return the cost of each stage for `count` records."""
    numbers = random.Random(1)
    rows = [(numbers.randrange(1000), numbers.randrange(1, 100_000) / 100) for _ in range(count)]
    bodies = [orjson.dumps([list(row) for row in rows[i : i + REQUEST]]) for i in range(0, count, REQUEST)]
    records = encoded(rows)
    blocks = [b"".join(records[i : i + BLOCK]) for i in range(0, count, BLOCK)]
    keys = [CODEC.encode_key([account]) or b"" for account, _ in rows]
    return {
        "decode JSON, 1,000 rows a request": best(lambda: [orjson.loads(body) for body in bodies]),
        "encode a record": best(lambda: encoded(rows)),
        "send records until durable": best(lambda: send(broker, topic(broker), records)),
        "read records back": best_read(broker, records),
        "send blocks until durable": best(lambda: send(broker, topic(broker), blocks)),
        "read blocks back": best_read(broker, blocks),
        "decode a record": best(lambda: [CODEC.decode_value(record) for record in records]),
        "put a raw entry into RocksDB": best(lambda: put(folder, keys, records)),
    }


def best(stage: Callable[[], object]) -> Cost:
    """Return the least cost of a stage in some rounds."""
    costs = []
    for _ in range(ROUNDS):
        before, started = spent(), time.perf_counter()
        stage()
        costs.append((time.perf_counter() - started, spent() - before))
    return min(costs)


def best_read(broker: str, records: Sequence[bytes]) -> Cost:
    """Return the least cost of reading records back from a topic."""
    name = topic(broker)
    send(broker, name, records)
    return best(lambda: read(broker, name, len(records)))


def spent() -> float:
    """Return the processor seconds of this process and its descendants, among which is the broker."""
    own = psutil.Process().cpu_times()
    return own.user + own.system + sum(processor_seconds(os.getpid()).values())


def encoded(rows: Sequence[tuple[int, float]]) -> list[bytes]:
    """Return the rows as values of records."""
    return [
        CODEC.encode_value(
            op=PUT,
            time_us=BEGIN_US + number,
            ingested_us=BEGIN_US + number,
            row=row,
            record_id=position_id(number, 0),
        )
        for number, row in enumerate(rows)
    ]


def topic(broker: str) -> str:
    """Return the name of a new topic with one partition."""
    name = f"floors.{uuid.uuid4().hex}"
    ensure_topics(broker, [name], 1)
    return name


def send(broker: str, name: str, values: Sequence[bytes]) -> None:
    """Write values to a topic; return when all are durable."""
    with TopicWriter(broker, timeout_s=TIMEOUT_S) as writer:
        futures = [
            writer.write(name, [(None, value, None) for value in values[start : start + WRITE]])
            for start in range(0, len(values), WRITE)
        ]
        for future in futures:
            future.result(TIMEOUT_S)


def read(broker: str, name: str, count: int) -> None:
    """Read `count` records of a topic from its beginning, as the index reads a backlog."""
    consumer = connect(broker, BACKLOG.config)
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        values = 0
        while values < count:
            values += sum(m.error() is None and m.value() is not None for m in consumer.consume(BACKLOG.batch, 0.1))
    finally:
        consumer.close()


def put(folder: Path, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
    """Write records to a new database under the keys of raw entries."""
    with tempfile.TemporaryDirectory(dir=folder) as path, IndexStore(Path(path) / "index") as store:
        for start in range(0, len(records), RAW_BATCH):
            batch = store.batch()
            for number in range(start, min(start + RAW_BATCH, len(records))):
                prefix = key_prefix(b"floors--", keys[number])
                batch.put(timed_key(prefix + RAW, BEGIN_US + number, position_id(number, 0)), records[number])
            store.write(batch)


if __name__ == "__main__":
    main()
