"""Sources: rows a second from a Kafka topic until they are durable in their dataset, beside the client library alone.

    python -m bench sources [--rows 1000000] [--kafka HOST:PORT] [--postgres URL] [--json FILE]

Rows are JSON objects of six fields. "Alone" is a consumer of confluent-kafka that reads the same topic and parses each
row with orjson, in one thread, and keeps nothing. The source is read by a server of its own until the server reports
that all rows are durable: once for a dataset without keys, whose rows are sent in blocks, and once for one with keys.
Rates are those of the rows behind the first ones, for the client and for the server; the seconds from the commit of a
dataset to its first durable rows are shown, too. "Processor" is the time of the client's process, or of the server's,
which also makes the index of a dataset with keys.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from processor_times import processor_seconds
from rich.table import Table
from services import services

from caraway import Dataset, dataset, field, meta
from caraway.apps.cli.output import out
from caraway.connectors import Kafka, source
from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess

TOPIC = "bench-source"
PARTITIONS = 4
REPEATS = 3
POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 1_200.0


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kafka", default="", help="a broker that runs already")
    parser.add_argument("--postgres", default="", help="an empty database that is there already")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    with services("sources", options.kafka, options.postgres) as (folder, kafka, postgres):
        size = fill(kafka, options.rows)
        alone, alone_us = max(read_alone(kafka, options.rows) for _ in range(REPEATS))
        server = ServerProcess(folder / "server", kafka=kafka, postgres=postgres)
        server.start()
        try:
            defined = datasets(kafka)
            taken = {
                each.__name__: take(server, defined[: position + 1], options.rows)
                for position, each in enumerate(defined)
            }
        finally:
            server.stop()
    report = {
        "bench": "sources",
        "rows": options.rows,
        "bytes_per_row": size,
        "alone_rows_per_second": alone,
        "rows_per_second": {name: found.rate for name, found in taken.items()},
        "share_of_alone": {name: found.rate / alone for name, found in taken.items()},
        "processor_us_per_row": {"alone": alone_us, **{name: found.processor_us for name, found in taken.items()}},
        "seconds_to_first_rows": {name: found.first_s for name, found in taken.items()},
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    table = Table("what", "rows/s", "share of the client alone", "processor, us per row", "first rows after, s")
    table.add_row("client alone", f"{alone:,.0f}", "1.00", f"{alone_us:.1f}", "")
    for name, found in taken.items():
        cells = f"{found.rate:,.0f}", f"{found.rate / alone:.2f}", f"{found.processor_us:.1f}", f"{found.first_s:.1f}"
        table.add_row(f"source of {name}", *cells)
    out.print(table)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def rows(count: int) -> Iterator[bytes]:
    """Yield the rows."""
    for n in range(count):
        yield orjson.dumps(
            {
                "user": f"user-{n % 10_007}",
                "merchant": f"merchant-{n % 997}",
                "amount": (n * 7919 % 100_000) / 100,
                "items": n % 7,
                "online": n % 3 == 0,
                "at": f"2024-05-{1 + n % 28:02}T{n % 24:02}:{n % 60:02}:00Z",
            }
        )


def fill(kafka: str, count: int) -> float:
    """Write the rows to the topic, and return their mean size in bytes."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    size = 0
    for number, row in enumerate(rows(count)):
        size += len(row)
        while True:
            try:
                producer.produce(TOPIC, row, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise TimeoutError("the broker didn't take the rows of the topic in time")
    return size / count


def read_alone(kafka: str, count: int) -> tuple[float, float]:
    """Return how many rows a second a consumer reads and parses, and the microseconds of processor time of a row.

    Both are of the rows behind the first ones.
    """
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench-alone", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    rows = 0
    first: tuple[float, int, float] | None = None
    while rows < count:
        for message in consumer.consume(10_000, timeout=1.0):
            value = message.value()
            if message.error() is None and value is not None:
                orjson.loads(value)
                rows += 1
        if first is None and rows:
            first = time.monotonic(), rows, time.process_time()
    if first is None or first[1] >= count:
        raise ValueError("all rows came at once; give more rows")
    seconds, processor_s, left = time.monotonic() - first[0], time.process_time() - first[2], count - first[1]
    consumer.close()
    return left / seconds, 1e6 * processor_s / left


def datasets(kafka: str) -> tuple[Dataset, ...]:
    """Return a dataset of events, and one with keys, of the same topic."""
    brokers = Kafka(name="bench", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")

    @meta(owner="bench@caraway.dev")
    @source(brokers.topic(TOPIC), disorder="30d", cdc="append")
    @dataset
    class Events:
        user: str
        merchant: str
        amount: float
        items: int
        online: bool
        at: datetime = field(timestamp=True)

    @meta(owner="bench@caraway.dev")
    @source(brokers.topic(TOPIC), disorder="30d", cdc="upsert")
    @dataset
    class Users:
        user: str = field(key=True)
        merchant: str
        amount: float
        items: int
        online: bool
        at: datetime = field(timestamp=True)

    return Events, Users


@dataclass(frozen=True)
class Taken:
    """How a source was read: rows a second, processor time in microseconds per row, and seconds to the first rows."""

    rate: float
    processor_us: float
    first_s: float


def take(server: ServerProcess, defined: Sequence[Dataset], count: int) -> Taken:
    """Commit datasets, of which the last is new, and wait until all rows of its source are durable."""
    begun, name = time.monotonic(), defined[-1].__name__
    server.commit(Graph(datasets=tuple(each.to_spec() for each in defined)))
    first: tuple[float, int, float] | None = None
    while (now := time.monotonic()) < begun + TIMEOUT_SECONDS:
        statuses = {status["dataset"]: status for status in server.http.get("/status").json()["sources"]}
        rows = statuses[name]["rows"] if name in statuses else 0
        if rows and first is None:
            first = now, rows, server_seconds()
        if first is not None and rows >= count > first[1]:
            left = count - first[1]
            processor_us = 1e6 * (server_seconds() - first[2]) / left
            return Taken(left / (now - first[0]), processor_us, first[0] - begun)
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"{name}: not all rows were read: {server.said()}")


def server_seconds() -> float:
    """Return the processor time of the server so far, in seconds."""
    return sum(spent for (role, _), spent in processor_seconds(os.getpid()).items() if role == "server")


if __name__ == "__main__":
    raise SystemExit(main())
