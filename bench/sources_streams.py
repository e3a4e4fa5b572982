"""Streams and collections: rows that readers hand over in a second of processor time, beside the client library alone.

    python -m bench sources_streams [--rows 100000] [--json FILE]

Rows are JSON objects of six fields. "Alone" is the loop that the library's documentation shows, in one thread, which
parses each row and keeps nothing. The reader hands the same rows over with their marks and positions. Both talk to the
same stand-in in a process of its own: moto for Kinesis, Google's emulator for PubSub, and FerretDB for MongoDB, if
`ferretdb` is on the PATH, whose collection both read in pages of 10,000 documents. Times are those of this process's
processor, since the stand-ins are slower than both. PubSub has a fifth of the rows, as answers of the emulator take
longer the more messages wait.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import grpc
import orjson
from google.api_core.exceptions import DeadlineExceeded
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from pymongo import MongoClient
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.apps.stack import ports
from caraway.dataplane.sources.kinesis.reader import KinesisReader
from caraway.dataplane.sources.pubsub.reader import PubSubReader
from caraway.dataplane.sources.reader import SourceReader
from caraway.dataplane.sources.tables.mongo import MongoReader
from caraway.graph.connectors import Connector, KinesisConnector, PubSubConnector, StreamStart, TableConnector
from caraway.graph.systems import KinesisSystem, MongoSystem, PubSubSystem
from tests.integration.server.server_process import eventually
from tests.integration.sources.contexts import context_of
from tests.integration.sources.pubsub_emulator import FOLDER, running_emulator

SHARDS = 4
TOPIC, ALONE = "projects/bench/topics/raw", "projects/bench/subscriptions/alone"
POLL_ROWS, POLL_BYTES = 10_000, 4 * 1024 * 1024
# Rows of one request that fills a stand-in.
FILLED = 500
# PubSub has only the rows divided by this.
PUBSUB_PART = 5


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    rows = {"Kinesis": options.rows}
    found = {"Kinesis": kinesis(rows["Kinesis"])}
    if list(FOLDER.glob("*.jar")):
        rows["PubSub"] = options.rows // PUBSUB_PART
        found["PubSub"] = pubsub(rows["PubSub"])
    if shutil.which("ferretdb"):
        rows["Mongo"] = options.rows
        found["Mongo"] = mongo(rows["Mongo"])
    table = Table("what", "rows", "alone, rows/s", "reader, rows/s", "share of the client alone")
    for name, (alone, read) in found.items():
        rates = f"{rows[name] / alone:,.0f}", f"{rows[name] / read:,.0f}"
        table.add_row(name, f"{rows[name]:,}", *rates, f"{alone / read:.2f}")
    out.print(table)
    report = {
        "bench": "sources_streams",
        "rows": rows,
        "alone_rows_per_processor_second": {name: rows[name] / alone for name, (alone, _) in found.items()},
        "rows_per_processor_second": {name: rows[name] / read for name, (_, read) in found.items()},
        "share_of_alone": {name: alone / read for name, (alone, read) in found.items()},
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def row(n: int) -> dict[str, Any]:
    """Return a row."""
    return {
        "n": n,
        "user": f"user-{n % 10_007}",
        "merchant": f"merchant-{n % 997}",
        "amount": (n * 7919 % 100_000) / 100,
        "online": n % 3 == 0,
        "at": 1_700_000_000 + n,
    }


def filled(rows: int, put: Callable[[list[int]], object]) -> None:
    """Put rows into a stand-in."""
    for begin in range(0, rows, FILLED):
        put(list(range(begin, min(begin + FILLED, rows))))


def seconds_of(read: Callable[[], int], rows: int) -> float:
    """Return the processor time until so many rows are read; `read` reads once and returns how many rows it got."""
    begun, left = time.process_time(), rows
    while left > 0:
        left -= read()
    return time.process_time() - begun


def handed_over(reader: SourceReader) -> Callable[[], int]:
    """Return a function that polls once, as the worker does, and asks for the mark of each row."""

    def read() -> int:
        batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=0.5)
        if batch is None:
            return 0
        for number in range(len(batch.rows)):
            batch.mark(number)
        reader.acknowledge(batch.position)
        return len(batch.rows)

    return read


def kinesis(rows: int) -> tuple[float, float]:
    """Return the processor time in seconds of boto3 alone and of the reader."""
    with process([sys.executable, "-m", "moto.server", "-p", str(port := ports.choose())]):
        url = f"http://127.0.0.1:{port}"
        client = boto3.client("kinesis", endpoint_url=url, region_name="eu-west-1")
        eventually(lambda: answers(client.list_streams))
        client.create_stream(StreamName="raw", ShardCount=SHARDS)
        arn = client.describe_stream_summary(StreamName="raw")["StreamDescriptionSummary"]["StreamARN"]
        filled(
            rows,
            lambda some: client.put_records(
                StreamName="raw", Records=[{"Data": orjson.dumps(row(n)), "PartitionKey": str(n)} for n in some]
            ),
        )
        iterators = {
            shard["ShardId"]: client.get_shard_iterator(
                StreamName="raw", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            for shard in client.list_shards(StreamName="raw")["Shards"]
        }

        def alone() -> int:
            count = 0
            for shard, iterator in iterators.items():
                answer = client.get_records(ShardIterator=iterator, Limit=POLL_ROWS)
                iterators[shard] = answer["NextShardIterator"]
                for record in answer["Records"]:
                    orjson.loads(record["Data"])
                count += len(answer["Records"])
            return count

        first = seconds_of(alone, rows)
        system = KinesisSystem(name="kin", role_arn="arn:aws:iam::123456789012:role/bench")
        connector = KinesisConnector(system=system, stream_arn=arn, start=StreamStart.TRIM_HORIZON)
        return first, read_by(KinesisReader, connector, url, rows)


def pubsub(rows: int) -> tuple[float, float]:
    """Return the processor time in seconds of Google's library alone and of the reader."""
    with running_emulator() as address, grpc.insecure_channel(address) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        publisher.create_topic(request={"name": TOPIC})
        # The order of keys slows the emulator, so both subscriptions have it.
        subscriber.create_subscription(
            request={"name": ALONE, "topic": TOPIC, "ack_deadline_seconds": 600, "enable_message_ordering": True}
        )
        connector = PubSubConnector(
            system=PubSubSystem(name="ps", project_id="bench", service_account_key="{}"), topic="raw"
        )
        reader = PubSubReader(connector, context_of(connector, endpoints={"ps": address}))
        reader.seek({}, {})
        reader.poll(rows=1, size=1, timeout_s=0.1)
        filled(
            rows,
            lambda some: publisher.publish(
                request={"topic": TOPIC, "messages": [{"data": orjson.dumps(row(n))} for n in some]}
            ),
        )

        def alone() -> int:
            try:
                answer = subscriber.pull(
                    request={"subscription": ALONE, "max_messages": 1_000}, retry=None, timeout=5
                ).received_messages
            except DeadlineExceeded:
                return 0
            for received in answer:
                orjson.loads(received.message.data)
            ids = [received.ack_id for received in answer]
            subscriber.acknowledge(request={"subscription": ALONE, "ack_ids": ids})
            return len(ids)

        first = seconds_of(alone, rows)
        second = seconds_of(handed_over(reader), rows)
        reader.close()
        return first, second


def mongo(rows: int) -> tuple[float, float]:
    """Return the processor time in seconds of pymongo alone and of the reader."""
    with tempfile.TemporaryDirectory() as folder:
        port = ports.choose()
        command = ["ferretdb", "--handler=sqlite", f"--sqlite-url=file:{folder}/", f"--state-dir={folder}"]
        command += [f"--listen-addr=127.0.0.1:{port}", "--debug-addr=-", "--telemetry=disable"]
        with process(command):
            client: MongoClient[dict[str, Any]] = MongoClient(f"mongodb://127.0.0.1:{port}")
            eventually(lambda: answers(lambda: client.admin.command("ping")))
            collection = client["bench"]["raw"]
            begin = datetime(2024, 5, 1, tzinfo=UTC)
            collection.create_index("at")
            filled(
                rows,
                lambda some: collection.insert_many([{**row(n), "at": begin + timedelta(seconds=n)} for n in some]),
            )
            last = begin - timedelta(seconds=1)

            def alone() -> int:
                nonlocal last
                page = list(collection.find({"at": {"$gt": last}}, sort=[("at", 1)], limit=POLL_ROWS))
                last = page[-1]["at"].replace(tzinfo=UTC)
                return len(page)

            first = seconds_of(alone, rows)
            system = MongoSystem(name="m", host=f"127.0.0.1:{port}", database="bench", username="", password="")
            connector = TableConnector(system=system, table="raw", cursor="at")
            return first, read_by(MongoReader, connector, f"127.0.0.1:{port}", rows)


def read_by(kind: Callable[[Any, Any], SourceReader], connector: Connector, address: str, rows: int) -> float:
    """Return the processor time in seconds in which a reader hands rows over."""
    name = connector.system_name
    reader = kind(connector, context_of(connector, endpoints={name: address}))
    reader.seek({}, {})
    seconds = seconds_of(handed_over(reader), rows)
    reader.close()
    return seconds


@contextmanager
def process(command: list[str]) -> Iterator[None]:
    """Run a stand-in."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            yield
        finally:
            started.kill()


def answers(ask: Callable[[], object]) -> bool:
    """Return whether a stand-in is up."""
    try:
        ask()
    except Exception:  # noqa: BLE001 (each library has its own errors)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
