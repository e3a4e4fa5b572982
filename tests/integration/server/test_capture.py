"""A server that captures the changes of a table of Postgres or MariaDB into Kafka, and that is killed meanwhile."""

# mypy: disable-error-code="attr-defined"

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg
import pymysql
import pytest

from caraway import Dataset, connectors, dataset, field, meta
from caraway.connectors import ref, source
from caraway.dataplane.topics.codec import DELETE
from caraway.graph.specs import Graph
from tests.integration.server.server_process import RecordCount, ServerProcess, eventually, records
from tests.services.mariadb import DATABASE, PASSWORD, USER, MariaDB, running_mariadb
from tests.services.postgres import Postgres, running_postgres


class Source(Protocol):
    """The database whose table is captured."""

    def execute(self, *statements: str) -> list[tuple[Any, ...]]: ...

    def fill(self, rows: int) -> None: ...

    def connector(self) -> connectors.DataConnector: ...

    def end(self) -> list[int]: ...


class PostgresSource:
    """A database of Postgres."""

    def __init__(self, server: Postgres) -> None:
        self._connection = psycopg.connect(server.url, autocommit=True)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def fill(self, rows: int) -> None:
        self.execute(f"INSERT INTO plants SELECT n, n FROM generate_series(1, {rows:d}) n")  # noqa: S608 (a number)

    def connector(self) -> connectors.DataConnector:
        info = self._connection.info
        system = connectors.Postgres(
            name="garden",
            host=info.host,
            port=info.port,
            db_name=info.dbname,
            username=info.user,
            password=info.password,
        )
        return system.table("plants", cursor=None)

    def close(self) -> None:
        self._connection.close()

    def end(self) -> list[int]:
        return list(self.execute("SELECT (pg_logical_emit_message(true, 'test', 'here') - '0/0'::pg_lsn)::bigint")[0])


class MariaDBSource:
    """A database of MariaDB."""

    def __init__(self, server: MariaDB) -> None:
        self._port = server.port
        self._cursor = pymysql.connect(
            host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database=DATABASE, autocommit=True
        ).cursor()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            self._cursor.execute(statement)
        return list(self._cursor.fetchall())

    def fill(self, rows: int) -> None:
        self.execute(f"INSERT INTO plants SELECT seq, seq FROM seq_1_to_{rows:d}")  # noqa: S608 (a number)

    def connector(self) -> connectors.DataConnector:
        system = connectors.MySQL(
            name="garden", host="127.0.0.1", port=self._port, db_name=DATABASE, username=USER, password=PASSWORD
        )
        return system.table("plants", cursor=None)

    def end(self) -> list[int]:
        self.execute("CREATE TABLE IF NOT EXISTS others (id int)", "INSERT INTO others VALUES (1)")
        file, position = self.execute("SHOW MASTER STATUS")[0][:2]
        return [int(file.rpartition(".")[2]), int(position)]


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    if request.param == "postgres":
        with running_postgres(tmp_path / "source") as server:
            made = PostgresSource(server)
            yield made
            made.close()
    else:
        with running_mariadb(tmp_path / "source") as mariadb:
            yield MariaDBSource(mariadb)


def captured(connector: connectors.DataConnector) -> Dataset:
    @meta(owner="a@b.co")
    @source(connector, disorder="1h", cdc="native", preproc={"at": ref("__committed_at")})
    @dataset(index=True)
    class Plants:
        id: int = field(key=True)
        size: int
        at: datetime = field(timestamp=True)

    return Plants


def rows_of(kafka: str, topic: str) -> dict[int, int]:
    """Return what a topic says: the sizes by id. Its records of a key are in the order of their commits."""
    found: dict[int, tuple[int, int | None]] = {}
    for value in records(kafka, topic):
        record = msgspec.msgpack.decode(value)
        key, size = record[7][:2]
        if record[3] >= found.get(key, (record[3], None))[0]:
            found[key] = (record[3], None if record[2] == DELETE else size)
    return {key: size for key, (_, size) in found.items() if size is not None}


def check(own_server: Callable[[], ServerProcess], kafka: str, database: Source, rows: int, kills: int) -> None:
    run = database.execute
    run("CREATE TABLE plants (id int PRIMARY KEY, size int)")
    database.fill(rows)
    defined = captured(database.connector())
    server = own_server()
    server.commit(Graph(datasets=(defined.to_spec(),)))
    topic = server.made_topic("Plants")
    chance = random.Random(rows)
    counted = RecordCount(kafka, topic)
    for number in range(1, kills + 1):
        goal = counted() + chance.randrange(1, max(rows // kills, 2))
        # A check takes as long as a short slice, so many rows are written in longer ones.
        server.run_in_slices_until(
            lambda goal=goal: counted() >= goal,  # type: ignore[misc]
            slice_s=max(rows / 5_000_000, 0.02),
            seconds=600,
        )
        server.kill()
        run(
            "BEGIN",
            f"UPDATE plants SET size = size + 1 WHERE id % 97 = {number:d}",  # noqa: S608 (a number)
            f"DELETE FROM plants WHERE id % 89 = {number:d}",  # noqa: S608 (a number)
            f"UPDATE plants SET id = -id WHERE id % 83 = {number:d}",  # noqa: S608 (a number)
            "COMMIT",
        )
        server = own_server()
    counted.close()
    table: dict[int, int] = dict(run("SELECT id, size FROM plants"))
    caught_up(server, database)
    assert rows_of(kafka, topic) == table
    run("BEGIN", "TRUNCATE plants", "INSERT INTO plants VALUES (1, 1), (5, 5)", "COMMIT")
    caught_up(server, database)
    assert rows_of(kafka, topic) == {1: 1, 5: 5}

    eventually(lambda: server.looked_up("Plants", "id", [1, 2], "size") == {1: 1}, server.said)
    assert server.stop() == 0


def caught_up(server: ServerProcess, database: Source) -> None:
    end = database.end()

    def is_there() -> bool:
        status = server.source()
        # On a crowded machine the broker may not answer for a moment, and the source says so until it does.
        return bool(not status["error"] and status["lag"] == 0 and status["position"]["at"] >= end)

    eventually(is_there, lambda: f"{server.http.get('/status').json()['sources']}\n{server.said()}", 600)


@pytest.mark.full(reason="a million rows, for some minutes")
@pytest.mark.timeout(1800)
def test_a_million_rows_are_captured(own_server: Callable[[], ServerProcess], kafka: str, database: Source) -> None:
    check(own_server, kafka, database, rows=1_000_000, kills=8)
