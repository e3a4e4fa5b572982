"""Systems with rows for sources, of which `test_source_kills.py` kills what may be killed.

The rows of a system have numbers. Every hundredth has no number as its moisture, if the system has texts.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import boto3
import bson
import grpc
import orjson
import psycopg
import pyarrow as pa
import pymysql
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.sql import SqlCatalog

from caraway import connectors
from caraway.connectors import CSV, S3, BigQuery, Files, Kafka, Kinesis, Mongo, MySQL, Postgres, PubSub, Redshift
from tests.integration.server.test_file_sources import BEGIN, parquet
from tests.integration.sources import kinesis_server, mongo_server, pubsub_server
from tests.integration.sources.mongo_server import MongoServer
from tests.integration.sources.pubsub_emulator import running_emulator
from tests.integration.sources.pubsub_server import PubSubServer
from tests.services.bigquery import DATASET as DATASET_OF_BEES
from tests.services.bigquery import PROJECT
from tests.services.bigquery import BigQuery as BigQueryServer
from tests.services.mariadb import DATABASE, PASSWORD, USER, MariaDB
from tests.services.postgres import Postgres as PostgresServer
from tests.services.stores import StoreName, running_store

MANY = 1_000_000
# One row in so many has no number as its moisture.
REFUSED = 100
TOPIC = "projects/bees/topics/raw"


@dataclass(kw_only=True)
class ReadSystem:
    """A system that a source reads.

    Attributes:
        connector: Returns what the source reads, given the address of the broker that takes the rows.
        put: Adds the rows of some numbers.
        endpoints: The addresses of systems by their names.
        restart: Kills the system and starts it again, or does what happens if it isn't there for long; None if neither
            is possible.
        is_filled_first: True if the rows are there before the source is, so that they needn't be added while the system
            is killed.
        refuses: True if some rows have no number as their moisture.
        total: The number of rows.
        every: The interval of rounds; None for a stream.
        disorder: How late rows are; tables read again what is younger.
        pause_s: The shortest and the longest pause before the first kill.
    """

    connector: Callable[[str], connectors.DataConnector]
    put: Callable[[range], None]
    endpoints: dict[str, str] = field(default_factory=dict)
    restart: Callable[[], object] | None = None
    is_filled_first: bool = False
    refuses: bool = True
    total: int = MANY
    every: str | None = "1s"
    disorder: str = "14d"
    pause_s: tuple[float, float] = (0.1, 2)


def moisture(number: int) -> float | str:
    return "dry" if number % REFUSED == REFUSED - 1 else number / 7


def row(number: int) -> bytes:
    return orjson.dumps({"n": number, "moisture": moisture(number), "at": BEGIN + number})


@contextmanager
def topic(_: Path) -> Iterator[ReadSystem]:
    """One broker has both the source and the dataset, so its kills cut off reading as well as writing."""
    brokers: list[str] = []

    def connector(kafka: str) -> connectors.DataConnector:
        brokers.append(kafka)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic("raw", 3, 1)])["raw"].result()
        own = Kafka(name="brokers", bootstrap_servers=kafka, security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
        return own.topic("raw")

    def put(numbers: range) -> None:
        producer = Producer({"bootstrap.servers": brokers[0], "queue.buffering.max.messages": MANY})
        for number in numbers:
            producer.produce("raw", row(number), str(number))
        assert producer.flush(60) == 0

    yield ReadSystem(connector=connector, put=put, is_filled_first=True, every=None, pause_s=(0.1, 1))


@contextmanager
def folder(path: Path) -> Iterator[ReadSystem]:
    path.mkdir()

    def put(numbers: range) -> None:
        lines = (f"{number},{moisture(number)},{BEGIN + number}\n" for number in numbers)
        # A file appears as a whole, as a writer should do it.
        (path / f".{numbers.start}").write_text("".join(lines))
        (path / f".{numbers.start}").rename(path / f"{numbers.start}.csv")

    files = Files(name="drop").folder(str(path), path="*.csv", format=CSV(headers=["n", "moisture", "at"]))
    yield ReadSystem(connector=lambda _: files, put=put)


@contextmanager
def objects(name: StoreName, path: Path) -> Iterator[ReadSystem]:
    with running_store(name, path, keeps=True) as store:
        store.create("raw")

        def put(numbers: range) -> None:
            store.put("raw", f"raw/day=2023-11-{10 + numbers.start % 20}/{numbers.start}.parquet", parquet(numbers))
            if numbers.stop == MANY:
                # Azurite writes its list of blobs every few seconds, and when it ends in order.
                store.server.stop()
                store.server.start()

        def restart() -> None:
            store.server.kill()
            store.server.start()

        yield ReadSystem(
            connector=lambda _: store.connector("cloud", "raw", path="raw/day=%Y-%m-%d/*.parquet", format="parquet"),
            put=put,
            endpoints={"cloud": store.server.address},
            restart=restart,
            is_filled_first=True,
            refuses=False,
            pause_s=(0.3, 3),
        )


@contextmanager
def iceberg(path: Path) -> Iterator[ReadSystem]:
    path.mkdir()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    # All servers of one process have the same objects, so the bucket has a name of its own.
    bucket, keys = f"tables-{secrets.token_hex(4)}", {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys).create_bucket(Bucket=bucket)
    store = {"s3.endpoint": address, "s3.region": "us-east-1"}
    store |= {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    catalog = SqlCatalog("ice", uri=f"sqlite:///{path}/catalog.db", warehouse=f"s3://{bucket}/lake", **store)
    catalog.create_namespace("db")
    schema = pa.schema([("n", pa.int64()), ("moisture", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
    table = catalog.create_table("db.pots", schema)

    def put(numbers: range) -> None:
        at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
        columns = [pa.array(numbers, pa.int64()), pa.array([number / 7 for number in numbers]), at]
        table.append(pa.Table.from_arrays(columns, schema=schema))

    lake = S3(name="lake", **keys).bucket(bucket, prefix="lake/db/pots", format="iceberg")
    yield ReadSystem(connector=lambda _: lake, put=put, endpoints={"lake": address}, refuses=False, pause_s=(0.1, 1.2))
    catalog.engine.dispose()
    server.stop()


class Database:
    """A private server of a database with a table of pots."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        # Postgres stands in for Redshift, whose driver it understands.
        kinds: dict[str, type[PostgresServer | MariaDB | BigQueryServer]]
        kinds = {"MySQL": MariaDB, "BigQuery": BigQueryServer}
        self.server = kinds.get(kind, PostgresServer)(folder)
        self.server.start()

    @property
    def connector(self) -> connectors.DataConnector:
        if isinstance(self.server, MariaDB):
            place = {"host": "127.0.0.1", "db_name": DATABASE, "username": USER, "password": PASSWORD}
            return MySQL(name="own", port=self.server.port, **place).table("pots", cursor="changed_at")
        if isinstance(self.server, BigQueryServer):
            key = json.loads(self.server.key)
            big = BigQuery(name="own", project_id=PROJECT, dataset_id=DATASET_OF_BEES, service_account_key=key)
            return big.table("pots", cursor="changed_at")
        of = urlsplit(self.server.url)
        settings: dict[str, Any] = {
            "name": "own",
            "host": "127.0.0.1",
            "port": self.server.port,
            "db_name": of.path[1:],
            "username": of.username or "",
            "password": of.password or "",
        }
        if self.kind == "Redshift":
            # The address is that of an endpoint, since a cluster has TLS and this server hasn't.
            settings |= {"host": "pots.c1abc.eu-west-1.redshift.amazonaws.com", "port": 5439, "schema": "public"}
            return Redshift(**settings).table("pots", cursor="changed_at")
        return Postgres(**settings).table("pots", cursor="changed_at")

    @property
    def endpoints(self) -> dict[str, str]:
        """The settings with which a Caraway server finds this one."""
        address = f"127.0.0.1:{self.server.port}"
        found = {"Redshift": {"own": address}, "BigQuery": {"own": f"http://{address}"}}
        return found.get(self.kind, {})

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def execute(self, *statements: str) -> None:
        if isinstance(self.server, BigQueryServer):
            # No other process may have the data open.
            self.server.stop()
            with self.server.opened() as service:
                for statement in statements:
                    service.execute(statement)
            self.server.start()
            return
        if isinstance(self.server, MariaDB):
            made: Any = pymysql.connect(
                host="127.0.0.1",
                port=self.server.port,
                user=USER,
                password=PASSWORD,
                database=DATABASE,
                autocommit=True,
            )
        else:
            made = psycopg.connect(self.server.url, autocommit=True)
        with made, made.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def create(self, *, key: bool) -> None:
        if self.kind == "Redshift":
            self.execute("CREATE FUNCTION getdate() RETURNS timestamp LANGUAGE sql AS 'SELECT now()::timestamp'")
        stamp = "datetime" if self.kind == "MySQL" else "timestamp"
        # The name is a word of DuckDB's.
        at = '"at"' if self.kind == "BigQuery" else "at"
        self.execute(
            f"CREATE TABLE pots (n int {'PRIMARY KEY' if key else ''}, moisture varchar(20), "
            f"changed_at {stamp}, {at} {stamp})",
        )
        if self.kind != "BigQuery":
            self.execute("CREATE INDEX pots_changed_at ON pots (changed_at)")

    def put(self, numbers: range) -> None:
        """Insert rows, of which a thousand each have the same cursor."""
        first, last = numbers.start, numbers.stop
        series = f"generate_series({first}, {last - 1}) AS numbers(n)"
        start, step, text = "timestamp '2024-05-01 00:00:00'", "(n / 1000) * interval '1 second'", "CAST(n AS text)"
        if isinstance(self.server, MariaDB):
            series = f"(SELECT seq AS n FROM seq_{first}_to_{last - 1}) AS numbers"
            step, text = "interval (n div 1000) second", "CAST(n AS char)"
        if isinstance(self.server, BigQueryServer):
            # DuckDB divides integers with a rest.
            step = "to_seconds(n // 1000)"
        value = f"CASE WHEN n % {REFUSED} = {REFUSED - 1} THEN 'dry' ELSE {text} END"
        self.execute(f"INSERT INTO pots SELECT n, {value}, {start} + {step}, {start} FROM {series}")
        if not isinstance(self.server, BigQueryServer):
            self.execute("ANALYZE TABLE pots" if self.kind == "MySQL" else "ANALYZE pots")


@contextmanager
def table(kind: str, key: bool, path: Path) -> Iterator[ReadSystem]:
    database = Database(kind, path)
    try:
        database.create(key=key)
        yield ReadSystem(
            connector=lambda _: database.connector,
            put=database.put,
            endpoints=database.endpoints,
            restart=database.restart,
            is_filled_first=True,
            disorder="10s",
            # Warehouses answer more slowly.
            pause_s=(0.05, 4 if kind in {"Redshift", "BigQuery"} else 1),
        )
    finally:
        database.server.stop()


@contextmanager
def kinesis(_: Path) -> Iterator[ReadSystem]:
    # Each of moto's answers takes longer the more records its shards have: a million take more than half an hour.
    with kinesis_server.running(kinesis_server.KinesisServer(shards=4, page=10_000)) as server:

        def put(numbers: range) -> None:
            for n in numbers:
                server.put(Random(n).randrange(kinesis_server.SPACE), row(n))

        system = Kinesis(name="kin", role_arn="arn:aws:iam::123456789012:role/reader")
        stream = system.stream(kinesis_server.ARN, "trim_horizon", "json")
        yield ReadSystem(connector=lambda _: stream, put=put, endpoints={"kin": server.url}, every=None)


def messages() -> connectors.DataConnector:
    system = PubSub(name="ps", project_id="bees", service_account_key={"type": "service_account"})
    return system.topic("raw", "json")


@contextmanager
def pubsub(_: Path) -> Iterator[ReadSystem]:
    with pubsub_server.running(PubSubServer(topics={TOPIC}, page=1_000)) as server:

        def put(numbers: range) -> None:
            for begin in range(numbers.start, numbers.stop, 1_000):
                with server.at_once():
                    for n in range(begin, min(begin + 1_000, numbers.stop)):
                        server.publish(TOPIC, row(n))

        # Deadlines pass when a killed server doesn't extend them.
        yield ReadSystem(
            connector=lambda _: messages(),
            put=put,
            endpoints={"ps": server.address},
            restart=server.expire,
            every=None,
        )


@contextmanager
def emulator(_: Path) -> Iterator[ReadSystem]:
    with running_emulator() as address, grpc.insecure_channel(address) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        publisher.create_topic(request={"name": TOPIC})

        def put(numbers: Sequence[int]) -> None:
            for begin in range(0, len(numbers), 500):
                some = [{"data": row(n)} for n in numbers[begin : begin + 500]]
                publisher.publish(request={"topic": TOPIC, "messages": some})

        # The time of the emulator's answers grows with the number of messages that wait: 200,000 take more than ten
        # minutes. It delivers again only after a minute, so there are few kills.
        yield ReadSystem(
            connector=lambda _: messages(),
            put=put,
            endpoints={"ps": address},
            total=40_000,
            every=None,
            pause_s=(1, 20),
        )


@contextmanager
def mongo(_: Path) -> Iterator[ReadSystem]:
    with mongo_server.running(MongoServer()) as server:
        # A collection is there with its first document, which is one that the dataset refuses.
        server.collections["raw"] = [document(REFUSED - 1)]

        def put(numbers: range) -> None:
            server.collections["raw"] += [document(number) for number in numbers if number != REFUSED - 1]

        own = Mongo(name="herd", host="cluster.example.com", db_name="bees", username="", password="")
        collection = own.collection("raw", cursor="at")
        # The stand-in looks at all documents for each page, so there are few kills.
        yield ReadSystem(
            connector=lambda _: collection,
            put=put,
            endpoints={"herd": server.address},
            disorder="1h",
            pause_s=(1, 20),
        )


def document(number: int) -> dict[str, Any]:
    found = orjson.loads(row(number))
    return {**found, "_id": bson.ObjectId(), "at": datetime.fromtimestamp(found["at"], UTC)}


SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[ReadSystem]]] = {
    "kafka": topic,
    "files": folder,
    "gcs": partial(objects, "gcs"),
    "azure": partial(objects, "azure"),
    "iceberg": iceberg,
    "postgres": partial(table, "Postgres", True),
    "postgres without key": partial(table, "Postgres", False),
    "mysql": partial(table, "MySQL", True),
    "mysql without key": partial(table, "MySQL", False),
    "redshift": partial(table, "Redshift", False),
    "bigquery": partial(table, "BigQuery", False),
    "kinesis": kinesis,
    "pubsub": pubsub,
    "emulator of pubsub": emulator,
    "mongo": mongo,
}
