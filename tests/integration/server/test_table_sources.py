"""A server reads tables of real databases: nothing is lost or doubled, whatever is killed."""

# mypy: disable-error-code="attr-defined"

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import msgspec
import orjson
import psycopg
import pymysql
import pytest

from caraway import Dataset, connectors, dataset, field, meta
from caraway.config.settings import SourcesSettings
from caraway.connectors import BigQuery, MySQL, Postgres, Redshift, source
from caraway.graph.specs import Graph
from caraway.topics.dead_letters import DEAD_LETTERS
from tests.integration.server.server_process import RecordCount, ServerProcess, end_of, eventually, records
from tests.services.bigquery import DATASET as DATASET_OF_BEES
from tests.services.bigquery import PROJECT
from tests.services.bigquery import BigQuery as BigQueryServer
from tests.services.mariadb import DATABASE, PASSWORD, USER, MariaDB
from tests.services.postgres import Postgres as PostgresServer

ROWS, MANY = 20_000, 1_000_000
WAREHOUSES = ("Redshift", "BigQuery")
# Every hundredth row has no number as its value.
LETTERS = 100


class Server:
    """A private server of a database with a table of hives, whose connector is `connector`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        # The topic is named after the definitions, which have the name of the system, and tests share a broker.
        self.name = f"db_{secrets.token_hex(4)}"
        # Postgres stands in for Redshift, whose driver it understands.
        kinds: dict[str, type[PostgresServer | MariaDB | BigQueryServer]]
        kinds = {"MySQL": MariaDB, "BigQuery": BigQueryServer}
        self.server = kinds.get(kind, PostgresServer)(folder)
        self.server.start()

    @property
    def connector(self) -> connectors.DataConnector:
        if isinstance(self.server, MariaDB):
            my = MySQL(
                name=self.name,
                host="127.0.0.1",
                port=self.server.port,
                db_name=DATABASE,
                username=USER,
                password=PASSWORD,
            )
            return my.table("hives", cursor="changed_at")
        if isinstance(self.server, BigQueryServer):
            big = BigQuery(
                name=self.name,
                project_id=PROJECT,
                dataset_id=DATASET_OF_BEES,
                service_account_key=json.loads(self.server.key),
            )
            return big.table("hives", cursor="changed_at")
        of = urlsplit(self.server.url)
        settings: dict[str, Any] = {
            "name": self.name,
            "host": "127.0.0.1",
            "port": self.server.port,
            "db_name": of.path[1:],
            "username": of.username or "",
            "password": of.password or "",
        }
        if self.kind == "Redshift":
            # The address is that of an endpoint, since a cluster has TLS and this server hasn't.
            settings |= {"host": "hives.c1abc.eu-west-1.redshift.amazonaws.com", "port": 5439, "schema": "public"}
            return Redshift(**settings).table("hives", cursor="changed_at")
        return Postgres(**settings).table("hives", cursor="changed_at")

    @property
    def settings(self) -> SourcesSettings:
        """The settings with which a Caraway server finds this one."""
        address = f"127.0.0.1:{self.server.port}"
        endpoints = {"Redshift": {self.name: address}, "BigQuery": {self.name: f"http://{address}"}}
        return SourcesSettings(endpoints=endpoints.get(self.kind, {}))

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

    def fill(self, first: int, last: int, seconds: int) -> None:
        """Insert rows, of which a thousand each have the same cursor."""
        series = f"generate_series({first}, {last - 1}) AS numbers(n)"
        start, step, text = "timestamp '2024-05-01 00:00:00'", "(n / 1000) * interval '1 second'", "CAST(n AS text)"
        if isinstance(self.server, MariaDB):
            series = f"(SELECT seq AS n FROM seq_{first}_to_{last - 1}) AS numbers"
            step, text = "interval (n div 1000) second", "CAST(n AS char)"
        if isinstance(self.server, BigQueryServer):
            # DuckDB divides integers with a rest.
            step = "to_seconds(n // 1000)"
        at = f"{start} + {step} + interval '{seconds}' second"
        value = f"CASE WHEN n % {LETTERS} = 0 THEN 'none' ELSE {text} END"
        self.execute(f"INSERT INTO hives SELECT n, {value}, {at}, {start} FROM {series}")

    def create(self, *, key: bool) -> None:
        if self.kind == "Redshift":
            self.execute("CREATE FUNCTION getdate() RETURNS timestamp LANGUAGE sql AS 'SELECT now()::timestamp'")
        stamp = "datetime" if self.kind == "MySQL" else "timestamp"
        # The name is a word of DuckDB's.
        at = '"at"' if self.kind == "BigQuery" else "at"
        self.execute(
            f"CREATE TABLE hives (hive int {'PRIMARY KEY' if key else ''}, value varchar(20), "
            f"changed_at {stamp}, {at} {stamp})",
        )
        if self.kind != "BigQuery":
            self.execute("CREATE INDEX hives_changed_at ON hives (changed_at)")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Yield a function that starts a private server."""
    with ExitStack() as stack:

        def start(kind: str) -> Server:
            made = Server(kind, tmp_path / kind)
            stack.callback(made.server.stop)
            return made

        yield start


def hives_of(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="10s", cdc="append", every="1s")
    @dataset
    class Hives:
        hive: int
        value: int
        at: datetime = field(timestamp=True)

    return Hives


def taken(kafka: str, topic: str) -> Counter[int]:
    return Counter(msgspec.msgpack.decode(value)[7][0] for value in records(kafka, topic))


def refused(kafka: str, name: str) -> Counter[int]:
    found = [orjson.loads(value) for value in records(kafka, DEAD_LETTERS) if name.encode() in value]
    return Counter(letter["row"]["hive"] for letter in found)


def expected(rows: int) -> Counter[int]:
    return Counter(number for number in range(rows) if number % LETTERS)


def status(server: ServerProcess) -> dict[str, Any]:
    (found,) = server.http.get("/status").json()["sources"]
    return dict(found)


@pytest.mark.spec("connectors:11:2", "connectors:11:3")
def test_a_killed_server_and_a_killed_database_take_each_row_once(
    own_server: Callable[[], ServerProcess], database: Callable[[str], Server], kafka: str
) -> None:
    hives = database("MySQL")
    hives.create(key=False)
    hives.fill(0, ROWS, 0)
    server = own_server()
    server.commit(Graph(datasets=(hives_of(hives.connector).to_spec(),)))
    eventually(lambda: "Hives" in str(server.http.get("/status").json().get("topics")), server.said)
    topic = server.topic("Hives")
    # The slices are short, so that the server doesn't write all pages in one.
    server.run_in_slices_until(lambda: end_of(kafka, topic) >= 1, slice_s=0.005)
    server.kill()
    assert end_of(kafka, topic) < ROWS * 0.9
    server = own_server()
    hives.server.kill()
    eventually(lambda: "table hives" in status(server)["error"], server.said)
    assert server.health().status_code == 200
    hives.server.start()
    # Rows that come late, and that belong to a value of the cursor that was read.
    hives.fill(ROWS, ROWS + 10, -5)
    eventually(lambda: end_of(kafka, topic) >= sum(expected(ROWS + 10).values()), server.said)
    assert taken(kafka, topic) == expected(ROWS + 10)
    eventually(lambda: sum(refused(kafka, hives.name).values()) >= (ROWS + 10) // LETTERS + 1, server.said)
    assert refused(kafka, hives.name) == Counter(range(0, ROWS + 10, LETTERS))

    def rests() -> bool:
        found = status(server)
        return (found["state"], found["progress"], found["position"]["most"]) == ("reading", None, None)

    # A round may be under way, since one begins each second.
    eventually(rests, server.said)


@pytest.mark.full(reason="a million rows and some twenty kills; a smaller load with two kills is in each run")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("Postgres", True),
        ("Postgres", False),
        ("MySQL", True),
        ("MySQL", False),
        ("Redshift", False),
        ("BigQuery", False),
    ],
)
def test_a_million_rows_survive_kills_at_random_moments(
    own_server: Callable[..., ServerProcess], database: Callable[[str], Server], kafka: str, kind: str, key: bool
) -> None:
    hives = database(kind)
    hives.create(key=key)
    hives.fill(0, MANY, 0)
    if kind != "BigQuery":
        hives.execute("ANALYZE TABLE hives" if kind == "MySQL" else "ANALYZE hives")
    server = own_server(sources=hives.settings)
    server.commit(Graph(datasets=(hives_of(hives.connector).to_spec(),)))
    eventually(lambda: "Hives" in str(server.http.get("/status").json().get("topics")), server.said)
    topic, random = server.topic("Hives"), Random(f"{kind} {key}")
    counted, wanted = RecordCount(kafka, topic), sum(expected(MANY).values())
    kills, seen, before = Counter[str](), 0, 0

    def loading_or_done() -> bool:
        nonlocal seen
        # A load has a progress; tables of warehouses are read by their cursor only.
        loading = status(server)["progress"] is not None or (kind in WAREHOUSES and counted() > before)
        seen += loading
        return loading or counted() >= wanted

    for victim in cycle(["server", "database"]):
        # The load has begun again after the last kill, or it has ended.
        eventually(loading_or_done, server.said)
        # Warehouses answer more slowly.
        time.sleep(random.uniform(0.05, 4 if kind in WAREHOUSES else 1))
        if counted() >= wanted:
            break
        kills[victim] += 1
        before = counted()
        if victim == "server":
            server.kill()
            server = own_server(sources=hives.settings)
        else:
            hives.server.kill()
            hives.server.start()
    counted.close()
    assert seen
    assert min(kills["server"], kills["database"]) >= 1, kills
    found, every = taken(kafka, topic), expected(MANY)
    wrong = sorted(number for number in found | every if found[number] != every[number])
    assert not wrong, (len(wrong), wrong[:5], wrong[-5:], Counter(map(found.get, wrong)), kills, server.said())
    eventually(lambda: sum(refused(kafka, hives.name).values()) >= MANY // LETTERS, server.said)
    assert refused(kafka, hives.name) == Counter(range(0, MANY, LETTERS))
