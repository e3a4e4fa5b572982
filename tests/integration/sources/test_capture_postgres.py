"""The capture of changes from a real Postgres: the dataset equals the table at every checked moment."""

import os
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from caraway.graph.connectors import PostgresSystem
from caraway.ingest.sources.capture import reader
from caraway.ingest.sources.capture.postgres import log
from caraway.ingest.sources.worker import SourceWorker
from tests.integration.sources.capture_world import KilledError, World, plants
from tests.services.postgres import Postgres, running_postgres

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with running_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the server all the time how far its log is decoded, so that no test waits for it."""
    monkeypatch.setattr(log, "ASK_S", 0.0)
    monkeypatch.setattr(reader, "QUIET_S", 0.0)


@pytest.fixture
def database(server: Postgres) -> Iterator[Connection]:
    name = f"test_{os.urandom(4).hex()}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with psycopg.connect(server.url, dbname=name, autocommit=True) as connection:
            yield connection
        admin.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s AND active", (name,)
        )
        for _ in range(100):
            left = admin.execute(
                "SELECT slot_name, active FROM pg_replication_slots WHERE database = %s", (name,)
            ).fetchall()
            if not any(active for _, active in left):
                break
        for slot, _ in left:
            admin.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def system_of(connection: Connection) -> PostgresSystem:
    info = connection.info
    return PostgresSystem(
        name="garden",
        host=info.host,
        port=info.port,
        database=info.dbname,
        username=info.user,
        password=info.password,
    )


TABLE = "CREATE TABLE plants (id int PRIMARY KEY, kind text, note text, size numeric(10, 2))"


def world_of(connection: Connection, table: str = "plants") -> World:
    return World(plants(system_of(connection), table))


def table_rows(connection: Connection) -> dict[Any, list[object]]:
    rows = connection.execute("SELECT id, kind, note, size FROM plants").fetchall()
    return {key: [kind, note, None if size is None else str(size)] for key, kind, note, size in rows}


def catch_up(world: World, worker: SourceWorker, connection: Connection) -> None:
    """Run a worker until it has read all that was committed."""
    ((end,),) = connection.execute("SELECT pg_logical_emit_message(true, 'test', 'here') - '0/0'::pg_lsn")
    for _ in range(300):
        world.now += 0.4
        assert worker.step()
        at = worker.position.get("at")
        if worker.lag == 0 and at is not None and at[0] >= end:
            return
    slots = connection.execute("SELECT * FROM pg_replication_slots").fetchall()
    raise AssertionError((worker.lag, worker.position, end, slots))


def test_a_table_is_loaded_and_followed(database: Connection) -> None:
    database.execute(TABLE)
    database.execute("INSERT INTO plants SELECT n, 'kind ' || n, NULL, n / 4.0 FROM generate_series(1, 20000) n")
    world = world_of(database)
    worker = world.worker()
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database)
    assert len(world.envelopes) == 20_000
    database.execute("UPDATE plants SET size = 7 WHERE id < 10")
    database.execute("UPDATE plants SET id = -id WHERE id < 5")
    database.execute("DELETE FROM plants WHERE id > 19990")
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database)
    database.execute("TRUNCATE plants")
    database.execute("INSERT INTO plants VALUES (3, 'again')")
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database) == {3: ["again", None, None]}
    assert not world.dead_letters
    world.kill()


class Trace:
    """Random changes of a table, in transactions of which some are rolled back."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._columns = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chosen = self._random.random()
            if chosen < 0.04:
                self._change_schema()
                continue
            try:
                with self._connection.transaction():
                    for _ in range(self._random.choice([1, 1, 3, 30])):
                        with self._connection.transaction():
                            self._change()
                    if self._random.random() < 0.15:
                        raise psycopg.Rollback
            except psycopg.errors.UniqueViolation:
                pass

    def _change(self) -> None:
        key, other = self._random.randrange(400), self._random.randrange(400)
        text = self._random.choice(["fern", "moss", None, "ü\u0301\\N\t{,}\"'"])
        # Postgres stores it outside of the row, and leaves it out of the log if it doesn't change.
        large = "".join(self._random.choices("abcdefgh", k=4000)) if self._random.random() < 0.3 else text
        size = Decimal(self._random.randrange(100_000)) / 100
        run = self._connection.execute
        chosen = self._random.random()
        if chosen < 0.4:
            run("INSERT INTO plants (id, kind, note, size) VALUES (%s, %s, %s, %s)", (key, text, large, size))
        elif chosen < 0.7:
            run("UPDATE plants SET size = %s, kind = %s WHERE id = %s", (size, text, key))
        elif chosen < 0.75:
            run("UPDATE plants SET note = %s WHERE id BETWEEN %s AND %s", (large, key, key + 20))
        elif chosen < 0.85:
            run("UPDATE plants SET id = %s WHERE id = %s", (other, key))
        elif chosen < 0.985:
            run("DELETE FROM plants WHERE id BETWEEN %s AND %s", (key, key + self._random.randrange(5)))
        else:
            run("TRUNCATE plants")

    def _change_schema(self) -> None:
        self._columns += 1
        run = self._connection.execute
        run(f"ALTER TABLE plants ADD COLUMN more{self._columns} int DEFAULT 5")
        match self._random.randrange(3):
            case 0:
                run("ALTER TABLE plants ALTER COLUMN size TYPE numeric(12, 2)")
            case 1:
                run("ALTER TABLE plants ALTER COLUMN id TYPE bigint")
            case _:
                run(f"ALTER TABLE plants DROP COLUMN more{self._columns}")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_random_trace_with_kills_gives_the_rows_of_the_table(database: Connection, identity: str, seed: int) -> None:
    check_trace(database, identity, seed, rows=3000, rounds=12)


def check_trace(database: Connection, identity: str, seed: int, *, rows: int, rounds: int) -> None:
    chance = random.Random(seed)
    database.execute(TABLE)
    database.execute(f"ALTER TABLE plants REPLICA IDENTITY {identity}")
    database.execute("INSERT INTO plants SELECT n, 'kind ' || n, NULL, n / 4.0 FROM generate_series(1, %s) n", (rows,))
    world = world_of(database)
    world.most_rows = lambda: chance.choice([3, 50, 1_000, 10_000])
    worker = world.worker()
    trace = Trace(database, seed)
    kills = 0
    for _ in range(rounds):
        for _ in range(6):
            trace.run(chance.randrange(4))
            world.fuse = chance.choice([10**9, chance.randrange(5), chance.randrange(60), chance.randrange(600)])
            world.now += chance.choice([0.1, 0.4, 2.0])
            try:
                assert worker.step()
            except KilledError:
                kills += 1
                world.kill()
                world.fuse = 10**9
                worker = world.worker()
        world.fuse = 10**9
        catch_up(world, worker, database)
        assert world.rows() == table_rows(database)
        assert not world.dead_letters
    world.kill()
    assert kills
