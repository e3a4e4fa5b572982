"""The capture of changes from real MariaDB and MySQL servers: the dataset equals the table at every checked moment."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from caraway.errors import UnavailableError
from caraway.graph.connectors import CaptureConnector, TableConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.systems import MySQLSystem
from caraway.ingest.sources.capture import reader
from caraway.ingest.sources.capture.mysql import stream, transactions
from caraway.ingest.sources.capture.reader import CaptureReader, forget
from caraway.ingest.sources.tables.mysql import MySQLReader
from caraway.ingest.sources.worker import SourceWorker
from tests.integration.sources.capture_world import KilledError, World, plants
from tests.services.mariadb import PASSWORD, USER, MariaDB, running_mariadb
from tests.services.mysql import MySQL, running_mysql

FULL = pytest.mark.full(reason="a MySQL server is fetched and started; CI has MariaDB")


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=FULL)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    running = {"mariadb": running_mariadb, "mysql": running_mysql}[request.param]
    with running(tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server say often that it has nothing more, so that no test waits for it."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(reader, "QUIET_S", 0.0)


class Database:
    """A database of its own on a server."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.name = f"test_{os.urandom(4).hex()}"
        self.is_mariadb = not isinstance(server, MySQL)
        self.cursor = self.connect(None)
        self.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
        self.execute(f"USE {self.name}")

    def connect(self, database: str | None) -> Cursor:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.server.port,
            user=USER,
            password=PASSWORD,
            database=database,
            autocommit=True,
        )
        return connection.cursor()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            self.cursor.execute(statement)
        return list(self.cursor.fetchall())

    def system(self, **more: Any) -> MySQLSystem:
        given: dict[str, Any] = {"username": USER, "password": PASSWORD, **more}
        return MySQLSystem(name="garden", host="127.0.0.1", port=self.server.port, database=self.name, **given)

    def world(self, table: str = "plants", **more: Any) -> World:
        return World(plants(self.system(**more), table))

    def rows(self) -> dict[Any, list[object]]:
        rows = self.execute("SELECT id, kind, note, size FROM plants")
        return {key: [kind, note, None if size is None else str(size)] for key, kind, note, size in rows}

    def fill(self, count: int) -> None:
        with self.cursor.connection.cursor() as cursor:
            rows = [(n, f"kind {n}", None, n / 4) for n in range(1, count + 1)]
            cursor.executemany("INSERT INTO plants (id, kind, note, size) VALUES (%s, %s, %s, %s)", rows)

    def end(self) -> list[int]:
        """Return the end of the log, behind a change of another table."""
        self.execute("CREATE TABLE IF NOT EXISTS others (id int)", "INSERT INTO others VALUES (1)")
        found = self.execute("SHOW MASTER STATUS" if self.is_mariadb else "SHOW BINARY LOG STATUS")[0]
        return [int(found[0].rpartition(".")[2]), int(found[1])]


@pytest.fixture
def database(server: MariaDB) -> Iterator[Database]:
    database = Database(server)
    yield database
    with suppress(pymysql.Error):
        database.execute(f"DROP DATABASE {database.name}")
    database.cursor.connection.close()


TABLE = "CREATE TABLE plants (id int PRIMARY KEY, kind text, note text, size decimal(10, 2))"


def catch_up(world: World, worker: SourceWorker, database: Database) -> None:
    """Run a worker until it has read all that was committed."""
    end = database.end()
    for _ in range(3000):
        world.now += 0.4
        assert worker.step()
        if worker.lag == 0 and worker.position["at"] >= end:
            return
    raise AssertionError((worker.lag, worker.position, end))


def check(world: World, worker: SourceWorker, database: Database) -> None:
    catch_up(world, worker, database)
    assert world.rows() == database.rows()
    assert not world.dead_letters


def test_a_table_is_loaded_and_followed(database: Database) -> None:
    database.execute(TABLE)
    database.fill(20_000)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    assert len(world.envelopes) == 20_000
    database.execute(
        "UPDATE plants SET size = 7 WHERE id < 10",
        "UPDATE plants SET id = -id WHERE id < 5",
        "DELETE FROM plants WHERE id > 19990",
    )
    check(world, worker, database)
    database.execute("TRUNCATE plants", "INSERT INTO plants (id, kind) VALUES (3, 'again')")
    check(world, worker, database)
    assert world.rows() == {3: ["again", None, None]}
    database.execute("DROP TABLE plants", TABLE, "INSERT INTO plants (id) VALUES (4)")
    check(world, worker, database)
    world.kill()


class Trace:
    """Random changes of a table, in transactions of which some are rolled back, in part or as a whole."""

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._columns = self._xids = 0
        database.execute("CREATE TABLE notes (id int) ENGINE = MyISAM")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chosen = self._random.random()
            if chosen < 0.04:
                self._change_schema()
            elif chosen < 0.06:
                self._database.execute("FLUSH BINARY LOGS")
            elif chosen < 0.1:
                self._prepared()
            else:
                self._transaction()

    def _transaction(self) -> None:
        run = self._database.execute
        run("BEGIN")
        for _ in range(self._random.choice([1, 1, 3, 30])):
            self._change()
            if self._random.random() < 0.1:
                run("SAVEPOINT here")
                self._change()
                if self._database.is_mariadb and self._random.random() < 0.5:
                    # With it, a part that is rolled back stays in the log.
                    run("INSERT INTO notes VALUES (1)")
                self._change()
                run("ROLLBACK TO here")
        chosen = self._random.random()
        if chosen < 0.1 and self._database.is_mariadb:
            # With it, a transaction that is rolled back stays in the log.
            run("CREATE TEMPORARY TABLE scratch (id int) ENGINE = MyISAM", "INSERT INTO scratch VALUES (1)")
            run("ROLLBACK", "DROP TEMPORARY TABLE scratch")
        run("ROLLBACK" if chosen < 0.2 else "COMMIT")

    def _prepared(self) -> None:
        """A transaction of XA, which others may overtake."""
        self._xids += 1
        run, xid = self._database.execute, f"'{self._database.name}{self._xids}'"
        run(f"XA START {xid}")
        self._change()
        self._change()
        run(f"XA END {xid}")
        if self._random.random() < 0.2:
            run(f"XA COMMIT {xid} ONE PHASE")
            return
        run(f"XA PREPARE {xid}", f"XA {self._random.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} {xid}")

    def _change(self) -> None:
        with suppress(pymysql.IntegrityError):
            self._try_change()

    def _try_change(self) -> None:
        key, other = self._random.randrange(400), self._random.randrange(400)
        text = self._random.choice(["fern", "moss", None, "ü\u0301\\N\t{,}\"'"])
        large = "".join(self._random.choices("abcdefgh", k=4000)) if self._random.random() < 0.3 else text
        size = self._random.randrange(100_000) / 100

        def run(statement: str, *values: object) -> None:
            self._database.cursor.execute(statement, values)

        chosen = self._random.random()
        if chosen < 0.4:
            run("INSERT INTO plants (id, kind, note, size) VALUES (%s, %s, %s, %s)", key, text, large, size)
        elif chosen < 0.7:
            run("UPDATE plants SET size = %s, kind = %s WHERE id = %s", size, text, key)
        elif chosen < 0.75:
            run("UPDATE plants SET note = %s WHERE id BETWEEN %s AND %s", large, key, key + 20)
        elif chosen < 0.85:
            run("UPDATE plants SET id = %s WHERE id = %s", other, key)
        else:
            run("DELETE FROM plants WHERE id BETWEEN %s AND %s", key, key + self._random.randrange(5))

    def _change_schema(self) -> None:
        self._columns += 1
        name = f"more{self._columns}"
        alter = "ALTER TABLE plants "
        run = self._database.execute
        run(f"{alter} ADD COLUMN {name} int DEFAULT 5 {self._random.choice(['FIRST', 'AFTER kind', ''])}")
        match self._random.randrange(6):
            case 0:
                run(f"{alter} MODIFY size decimal({self._random.randrange(12, 20)}, 2)")
            case 1:
                run(f"{alter} MODIFY id bigint")
            case 2:
                run(f"{alter} RENAME COLUMN {name} TO {name}_")
            case 3:
                run("TRUNCATE TABLE plants")
            case 4:
                run(f"{alter} MODIFY kind varchar(100) CHARACTER SET utf8mb4")
            case _:
                run(f"{alter} DROP COLUMN {name}")


@pytest.mark.parametrize("seed", range(2))
def test_a_random_trace_with_kills_gives_the_rows_of_the_table(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        # Larger transactions are read twice.
        monkeypatch.setattr(transactions, "KEPT_BYTES", 500)
    check_trace(database, seed, rows=3000, rounds=8)


def check_trace(database: Database, seed: int, *, rows: int, rounds: int) -> None:
    chance = random.Random(seed)
    database.execute(TABLE)
    database.fill(rows)
    if database.is_mariadb:
        database.execute(f"SET GLOBAL log_bin_compress = {chance.choice(['ON', 'OFF'])}")
    world = database.world()
    world.most_rows = lambda: chance.choice([3, 50, 1_000, 10_000])
    worker = world.worker()
    trace = Trace(database, seed)
    kills = 0
    for number in range(rounds):
        for _ in range(6):
            trace.run(chance.randrange(6))
            fuse = chance.choice([10**9, chance.randrange(5), chance.randrange(60), chance.randrange(600)])
            # The first kill is during the load.
            world.fuse = fuse if number else min(fuse, 100)
            world.now += chance.choice([0.1, 0.4, 2.0])
            try:
                assert worker.step()
            except KilledError:
                kills += 1
                world.kill()
                world.fuse = 10**9
                worker = world.worker()
        world.fuse = 10**9
        check(world, worker, database)
    world.kill()
    assert kills


@pytest.mark.full(reason="four traces of a hundred rounds each, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 104))
def test_long_traces(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(transactions, "KEPT_BYTES", 500)
    check_trace(database, seed, rows=20_000, rounds=100)
