"""The capture of changes from a real Postgres: the dataset equals the table at every checked moment."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from caraway.dataplane.sources.cdc import reader
from caraway.dataplane.sources.cdc.postgres import log
from caraway.dataplane.sources.cdc.postgres.connection import Server
from caraway.dataplane.sources.cdc.reader import CaptureReader, forget
from caraway.dataplane.sources.worker import SourceWorker
from caraway.errors import UnavailableError
from caraway.graph.connectors import CaptureConnector
from caraway.graph.systems import PostgresSystem
from tests.integration.sources.capture_world import World, plants
from tests.services.cutting import cutting_proxy
from tests.services.postgres import Postgres, running_postgres
from tests.timeouts import deadline_in
from tests.unit.leased import KilledError

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
        drop_slots(admin, name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def await_readers(connection: Connection, database: str) -> None:
    """Wait until the server knows that nobody reads the slots of a database any more."""
    held = "SELECT slot_name FROM pg_replication_slots WHERE database = %s AND active"
    deadline = deadline_in(10)
    while connection.execute(held, (database,)).fetchall():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def drop_slots(connection: Connection, database: str) -> None:
    """Drop the slots of a database when nobody reads them."""
    await_readers(connection, database)
    dropped = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
    connection.execute(dropped, (database,))


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
        if chosen < 0.1:
            run(
                "INSERT INTO plants (id, kind, note, size) SELECT n, %s::text, nullif(n || 't', '7t'), %s::numeric "
                "FROM generate_series(%s::int, %s::int) n ON CONFLICT (id) DO UPDATE SET kind = excluded.kind",
                (text, size, key, key + self._random.randrange(60)),
            )
        elif chosen < 0.4:
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


@pytest.mark.parametrize("seed", range(1))
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


def test_connections_that_are_cut_in_half_of_a_row_lose_and_double_nothing(database: Connection) -> None:
    database.execute(TABLE)
    system = system_of(database)
    # The proxy is a thread of this process, so nothing would come if the reader waited with Python's lock.
    with cutting_proxy(f"http://{system.host}:{system.port}") as proxy:
        address = urlsplit(proxy.address)
        assert address.hostname is not None
        assert address.port is not None
        world = World(plants(replace(system, host=address.hostname, port=address.port), "plants"))
        world.most_rows = lambda: 700
        worker = world.worker()
        catch_up(world, worker, database)
        # A transaction is read from its beginning again, so some connections must last for the whole of it.
        proxy.after = partial(next, cycle([40_000, 90_000, 250_000, 600_000, 3_000_000]))
        await_stop(worker, database)
        database.execute(
            "INSERT INTO plants SELECT n, 'kind ' || n, repeat('t', n % 90), n / 4.0 FROM generate_series(1, 6000) n"
        )
        database.execute("UPDATE plants SET note = NULL WHERE id <= 500")
        deadline = deadline_in(60)
        while world.rows() != table_rows(database):
            assert time.monotonic() < deadline, (proxy.cuts, len(world.rows()))
            world.now += 0.4
            with suppress(UnavailableError):
                worker.step()
        assert proxy.cuts >= 2
        # A row that comes twice may come after all those that are awaited.
        proxy.after = lambda: None
        await_stop(worker, database)
        catch_up(world, worker, database)
        assert len(world.topics[world.plan.topic.name]) == 6500
        assert not world.dead_letters
        world.kill()


def await_stop(worker: SourceWorker, connection: Connection) -> None:
    """Stop a worker, which may be used again, and wait until the server knows that nobody reads its slot."""
    worker.stop()
    await_readers(connection, connection.info.dbname)


def reader_of(world: World) -> CaptureReader:
    connector = world.dataset.sources[0].connector
    assert isinstance(connector, CaptureConnector)
    return CaptureReader(connector, world.context())


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ([], "there is no table plants"),
        (["CREATE VIEW plants AS SELECT 1 AS id"], "is no table"),
        (["CREATE UNLOGGED TABLE plants (id int PRIMARY KEY)"], "unlogged"),
        (["CREATE TABLE plants (id int)"], "ADD PRIMARY KEY"),
        ([TABLE, "ALTER TABLE plants REPLICA IDENTITY NOTHING"], "REPLICA IDENTITY DEFAULT"),
        (["CREATE TABLE plants (number int PRIMARY KEY, id int)"], "REPLICA IDENTITY FULL"),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused_with_the_remedy(
    database: Connection, statements: list[str], said: str
) -> None:
    for statement in statements:
        database.execute(statement.encode())
    with closing(reader_of(world_of(database))) as reader, pytest.raises(UnavailableError, match=said):
        reader.peek(3)


def test_a_trial_shows_rows_and_changes_nothing(database: Connection) -> None:
    database.execute(TABLE)
    database.execute("INSERT INTO plants SELECT n, 'fern', 'a', 1.5 FROM generate_series(1, 5) n")
    with closing(reader_of(world_of(database))) as reader:
        batch = reader.peek(3)
    assert len(batch.rows) == 3
    assert database.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    ).fetchall() == [(0,)]
    assert database.execute("SELECT count(*) FROM pg_publication").fetchall() == [(0,)]


def test_a_user_without_rights_is_told_what_to_run(server: Postgres, database: Connection) -> None:
    database.execute(TABLE)
    user = f"reader_{os.urandom(4).hex()}"
    database.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'pw'".encode())
    database.execute(f"GRANT SELECT ON plants TO {user}".encode())
    world = World(plants(replace(system_of(database), username=user, password="pw"), "plants"))
    with closing(reader_of(world)) as reader, pytest.raises(UnavailableError, match=f'ALTER ROLE "{user}" REPLICATION'):
        reader.peek(3)
    database.execute(f"ALTER ROLE {user} REPLICATION".encode())
    worker = world.worker()
    with pytest.raises(UnavailableError, match="let the owner of the table run `CREATE PUBLICATION") as raised:
        worker.step()
    # The statement in the message is all that is missing.
    database.execute(str(raised.value).split("`")[1].encode())
    database.execute("INSERT INTO plants VALUES (1, 'fern')")
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database)
    world.kill()
    database.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


def test_a_lost_slot_says_so_and_the_table_is_loaded_again_when_the_user_agrees(database: Connection) -> None:
    database.execute(TABLE)
    database.execute("INSERT INTO plants SELECT n FROM generate_series(1, 100) n")
    world = world_of(database)
    worker = world.worker()
    catch_up(world, worker, database)
    worker.stop()
    drop_slots(database, database.info.dbname)
    database.execute("DELETE FROM plants WHERE id < 50")
    database.execute("INSERT INTO plants VALUES (1000, 'new')")
    worker = world.worker()
    with pytest.raises(UnavailableError, match="changes are missing; to agree to a new load, run `SELECT") as raised:
        worker.step()
    assert len(world.rows()) == 100
    database.execute(str(raised.value).split("`")[1].encode())
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database)
    database.execute("DELETE FROM plants WHERE id = 1000")
    catch_up(world, worker, database)
    assert world.rows() == table_rows(database)
    world.kill()


def test_a_source_that_is_gone_leaves_no_slot_and_no_publication(database: Connection) -> None:
    database.execute(TABLE)
    world = world_of(database)
    worker = world.worker()
    catch_up(world, worker, database)
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(slots).fetchall() == [(1,)]
    connector = world.dataset.sources[0].connector
    assert isinstance(connector, CaptureConnector)
    assert world.saved is not None
    # Somebody still reads it.
    with pytest.raises(UnavailableError, match="pg_drop_replication_slot"):
        forget(connector, world.context(), world.saved.position)
    worker.stop()
    await_readers(database, database.info.dbname)
    for _ in range(2):
        forget(connector, world.context(), world.saved.position)
    assert database.execute(slots).fetchall() == [(0,)]
    assert database.execute("SELECT count(*) FROM pg_publication").fetchall() == [(0,)]


def test_changes_of_other_tables_let_the_slot_move_on(database: Connection) -> None:
    database.execute(TABLE)
    database.execute("CREATE TABLE others (id int)")
    world = world_of(database)
    worker = world.worker()
    catch_up(world, worker, database)
    database.execute("INSERT INTO others SELECT generate_series(1, 1000)")
    ((end,),) = database.execute("SELECT pg_current_wal_lsn()")
    catch_up(world, worker, database)
    for _ in range(100):
        world.now += 10
        worker.step()
        confirmed = (
            "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE database = current_database()"
        )
        if database.execute(confirmed, (end,)).fetchall() == [(True,)]:
            break
    assert database.execute(confirmed, (end,)).fetchall() == [(True,)]
    world.kill()


def test_envelopes_are_those_of_debezium(database: Connection) -> None:
    """See "Change events" of Debezium's connector for Postgres: op, before by replica identity, after, source."""
    database.execute(TABLE)
    database.execute("INSERT INTO plants VALUES (1, 'fern', NULL, 1.5)")
    world = world_of(database)
    world.dataset = replace(world.dataset, sources=(replace(world.dataset.sources[0], preproc=()),))
    worker = world.worker()
    catch_up(world, worker, database)
    for statement in (
        b"INSERT INTO plants VALUES (2, 'moss')",
        b"UPDATE plants SET kind = 'ivy' WHERE id = 1",
        b"UPDATE plants SET id = 3 WHERE id = 1",
        b"DELETE FROM plants WHERE id = 2",
        b"ALTER TABLE plants REPLICA IDENTITY FULL",
        b"DELETE FROM plants",
    ):
        database.execute(statement)
    catch_up(world, worker, database)
    fern = {"id": 1, "kind": "fern", "note": None, "size": "1.50"}
    ivy = {"id": 3, "kind": "ivy", "note": None, "size": "1.50"}
    assert [(each["op"], each["before"], each["after"]) for each in world.envelopes] == [
        ("r", None, fern),
        ("c", None, {"id": 2, "kind": "moss", "note": None, "size": None}),
        ("u", None, {**fern, "kind": "ivy"}),
        ("u", {"id": 1}, ivy),
        ("d", {"id": 2}, None),
        ("d", ivy, None),
    ]
    assert world.envelopes[0]["source"].keys() == {"snapshot", "ts_ms", "ts_us"}
    assert world.envelopes[1]["source"].keys() == {"txId", "lsn", "ts_ms", "ts_us"}
    world.kill()


@pytest.mark.full(reason="six traces of a hundred rounds each, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_long_traces(database: Connection, identity: str, seed: int) -> None:
    check_trace(database, identity, seed, rows=20_000, rounds=100)


def test_parameters_of_jdbc_mean_what_they_mean_for_tables(database: Connection) -> None:
    given = "currentSchema=my garden&ApplicationName=bees&connectTimeout=3"
    system = replace(system_of(database), jdbc_params=given)

    def connected(system: PostgresSystem, endpoints: dict[str, str]) -> list[str]:
        with Server(system, str, endpoints).connect() as connection:
            names = ("search_path", "application_name", "datestyle")
            return [connection.execute(f"SHOW {name}").fetchall()[0][0] for name in names]

    expected = ['"my garden"', "bees", "ISO, MDY"]
    assert connected(system, {}) == expected
    # The address of the deployment counts, in either of its forms.
    for address in (f"{system.host}:{system.port}", f"postgres://{system.host}:{system.port}/"):
        assert connected(replace(system, host="nowhere", port=1), {"garden": address}) == expected
    for wrong in ("hostaddr=127.0.0.1", "passfile=/etc/passwd", "connectTimeout=soon"):
        with pytest.raises(UnavailableError, match=wrong.partition("=")[0]):
            connected(replace(system, jdbc_params=wrong), {})
