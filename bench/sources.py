"""Sources: rows a second from a Kafka topic until they are durable in their dataset, beside the client library alone.

    python -m bench sources [--rows 1000000] [--kafka HOST:PORT] [--postgres URL] [--json FILE]

Rows are JSON objects of six fields. "Alone" is a consumer of confluent-kafka that reads the same topic and parses each
row with orjson, in one thread, and keeps nothing. The source is read by a server of its own, from the commit of the
dataset until the server reports that all rows are durable: once for a dataset without keys, whose rows are sent in
blocks, and once for one with keys.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.table import Table
from services import services

from caraway import Dataset, dataset, field, meta
from caraway.cli.output import out
from caraway.connectors import Kafka, source
from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess

TOPIC = "bench-source"
PARTITIONS = 4
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
        alone = min(read_alone(kafka, options.rows) for _ in range(2))
        server = ServerProcess(folder / "server", kafka=kafka, postgres=postgres)
        server.start()
        try:
            defined = datasets(kafka)
            seconds = {
                name: taken(server, defined[: position + 1], options.rows)
                for position, name in enumerate(each.__name__ for each in defined)
            }
        finally:
            server.stop()
    report = {
        "bench": "sources",
        "rows": options.rows,
        "bytes_per_row": size,
        "alone_rows_per_second": options.rows / alone,
        "rows_per_second": {name: options.rows / found for name, found in seconds.items()},
        "share_of_alone": {name: alone / found for name, found in seconds.items()},
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    table = Table("what", "rows/s", "share of the client alone")
    table.add_row("client alone", f"{options.rows / alone:,.0f}", "1.00")
    for name, found in seconds.items():
        table.add_row(f"source of {name}", f"{options.rows / found:,.0f}", f"{alone / found:.2f}")
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


def read_alone(kafka: str, count: int) -> float:
    """Return the seconds in which a consumer reads and parses all rows."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench-alone", "enable.auto.commit": False})
    begun = time.monotonic()
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    left = count
    while left:
        for message in consumer.consume(10_000, timeout=1.0):
            value = message.value()
            if message.error() is None and value is not None:
                orjson.loads(value)
                left -= 1
    seconds = time.monotonic() - begun
    consumer.close()
    return seconds


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


def taken(server: ServerProcess, defined: Sequence[Dataset], count: int) -> float:
    """Commit datasets, of which the last is new, and return the seconds until all rows of its source are durable."""
    begun, name = time.monotonic(), defined[-1].__name__
    server.commit(Graph(datasets=tuple(each.to_spec() for each in defined)))
    while time.monotonic() < begun + TIMEOUT_SECONDS:
        statuses = {status["dataset"]: status for status in server.http.get("/status").json()["sources"]}
        found = statuses.get(name)
        if found is not None and found["rows"] >= count and found["lag"] == 0:
            return time.monotonic() - begun
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"{name}: not all rows were read: {server.said()}")


if __name__ == "__main__":
    raise SystemExit(main())
