"""The capture of changes from real MariaDB and MySQL servers: the dataset equals the table at every checked moment."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from caraway.dataplane.sources.cdc import reader
from caraway.dataplane.sources.cdc.batch import COMMITTED_AT
from caraway.dataplane.sources.cdc.mysql import log, stream, transactions
from caraway.dataplane.sources.cdc.mysql.values import ZERO_DATE
from caraway.dataplane.sources.cdc.reader import CaptureReader, forget
from caraway.dataplane.sources.tables.database import Page
from caraway.dataplane.sources.tables.mysql import MySQLTable
from caraway.errors import UnavailableError
from caraway.graph.connectors import CaptureConnector, TableConnector
from tests.integration.sources.capture_world import World, plants
from tests.integration.sources.mysql_database import TABLE, Database, catch_up, check, keep_on
from tests.services.mariadb import MariaDB, running_mariadb
from tests.services.mysql import running_mysql
from tests.timeouts import deadline_in
from tests.unit.leased import KilledError

# Clients that write all the time wait while the reader is so far behind them.
NEAR_BYTES = 500_000
FULL = pytest.mark.full(reason="a MySQL server is fetched and started; CI has MariaDB")


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=FULL)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    # It is killed, and its logs are removed, so it isn't the one that other tests share.
    folder = tmp_path_factory.mktemp(request.param)
    with running_mysql(folder) if request.param == "mysql" else running_mariadb(folder) as server:
        yield server


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make servers say often that they have nothing more, and list prepared transactions at once.

    So no test waits for these. The tests of such transactions prepare them long before.
    """
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(log, "LISTED_S", 0.0)
    monkeypatch.setattr(reader, "QUIET_S", 0.0)


@pytest.fixture
def database(server: MariaDB) -> Iterator[Database]:
    database = Database(server)
    yield database
    with suppress(pymysql.Error):
        database.execute(f"DROP DATABASE {database.name}")
    database.cursor.connection.close()


def test_a_table_is_loaded_and_followed(database: Database) -> None:
    database.execute(TABLE)
    database.fill(9_000)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    assert len(world.envelopes) == 9_000
    database.execute(
        "UPDATE plants SET size = 7 WHERE id < 10",
        "UPDATE plants SET id = -id WHERE id < 5",
        "DELETE FROM plants WHERE id > 8990",
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
        database.execute("CREATE TABLE notes (id int) ENGINE = MyISAM", "CREATE TABLE ledger (id int)")

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
        """A transaction of XA: one that is committed in one phase, or one that doesn't change the table."""
        self._xids += 1
        run, xid = self._database.execute, f"'{self._database.name}{self._xids}'"
        run(f"XA START {xid}")
        if self._random.random() < 0.5:
            self._change()
            self._change()
            run(f"XA END {xid}", f"XA COMMIT {xid} ONE PHASE")
            return
        run("INSERT INTO ledger VALUES (1)", f"XA END {xid}", f"XA PREPARE {xid}")
        run(f"XA {self._random.choice(['COMMIT', 'ROLLBACK'])} {xid}")

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
    check_trace(database, seed, rows=2000, rounds=5)


def check_trace(database: Database, seed: int, *, rows: int, rounds: int) -> None:
    chance = random.Random(seed)
    database.execute(TABLE)
    database.fill(rows)
    world = database.world()
    world.most_rows = lambda: chance.choice([3, 50, 1_000, 10_000])
    worker = world.worker()
    trace = Trace(database, seed)
    world.fuse = 2
    with pytest.raises(KilledError):
        keep_on(world, worker)
    world.kill()
    worker = world.worker()
    for _ in range(rounds):
        for _ in range(6):
            trace.run(chance.randrange(6))
            world.fuse = chance.choice([10**9, chance.randrange(5), chance.randrange(60), chance.randrange(600)])
            world.now += chance.choice([0.1, 0.4, 2.0])
            try:
                assert worker.step()
            except KilledError:
                world.kill()
                world.fuse = 10**9
                worker = world.worker()
        world.fuse = 10**9
        check(world, worker, database)
    world.kill()


@pytest.mark.full(reason="four traces of a hundred rounds each, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 104))
def test_long_traces(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(transactions, "KEPT_BYTES", 500)
    check_trace(database, seed, rows=20_000, rounds=100)


def write(database: Database, chance: random.Random, keys: Sequence[int], may_go_on: Callable[[], bool]) -> None:
    """Change rows of some keys all the time, in transactions of which some are rolled back."""
    cursor = database.connect(database.name)
    # Gaps between keys aren't locked then, so that no client waits for another one.
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    while may_go_on():
        cursor.execute("BEGIN")
        for _ in range(chance.choice([1, 4, 20])):
            key, other, size = chance.choice(keys), chance.choice(keys), chance.randrange(10_000) / 100
            with suppress(pymysql.IntegrityError):
                match chance.randrange(4):
                    case 0:
                        cursor.execute("INSERT INTO plants (id, size) VALUES (%s, %s)", (key, size))
                    case 1:
                        cursor.execute("UPDATE plants SET id = %s WHERE id = %s", (other, key))
                    case 2:
                        cursor.execute("DELETE FROM plants WHERE id = %s", (key,))
                    case _:
                        cursor.execute("UPDATE plants SET size = %s WHERE id IN %s", (size, chance.sample(keys, 20)))
        cursor.execute(chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))


@pytest.mark.full(reason="loads of 60,000 rows beside three clients that write all the time, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(200, 203))
def test_a_load_beside_clients_that_write_at_the_same_time(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 2_000)
    database.execute(TABLE)
    database.fill(60_000)
    world = database.world()
    worker = world.worker()
    # A load ends only if the log is read faster than it grows, so clients wait while the reader is far behind them.
    is_near, is_over = threading.Event(), threading.Event()

    def may_go_on() -> bool:
        is_near.wait()
        return not is_over.is_set()

    with ThreadPoolExecutor(3) as pool:
        clients = [
            pool.submit(write, database, random.Random(f"{seed} {number}"), range(number, 60_000, 3), may_go_on)
            for number in range(3)
        ]
        try:
            deadline = deadline_in(600)
            while "at" not in worker.position or "snapshot" in worker.position:
                assert time.monotonic() < deadline
                world.now += 0.4
                worker.step()
                file, end = database.log_end()
                at = worker.position.get("at", [file, 0])
                (is_near.set if at[0] == file and end < at[1] + NEAR_BYTES else is_near.clear)()
        finally:
            is_over.set()
            is_near.set()
        for client in clients:
            client.result()
    check(world, worker, database)
    world.kill()


# The types, and values of each: the least, the greatest, and those with a form of their own.
NUMBERS: dict[str, list[object]] = {
    "tinyint": [-128, 127],
    "tinyint unsigned": [0, 255],
    "smallint": [-32768, 32767],
    "smallint unsigned": [65535],
    "mediumint": [-8388608, 8388607],
    "mediumint unsigned": [16777215],
    "int": [-2147483648, 2147483647],
    "int unsigned zerofill": [7, 4294967295],
    "bigint": [-(2**63), 2**63 - 1],
    "bigint unsigned": [2**64 - 1],
    "boolean": [True, False],
    "decimal(5, 2)": ["-999.99", "0.01", "-0.01", "0", "12.3"],
    "decimal(30, 10)": ["-12345678901234567890.0123456789", "1.0000000001", "-1"],
    "decimal(65, 30)": ["9" * 35 + "." + "9" * 30, "-" + "1" * 35],
    "decimal(9, 9)": ["0.123456789", "-0.000000001"],
    "decimal(18, 0)": [10**17, -(10**17)],
    "float": [0.1, -1.5e10, 3.4028234e38, 1234567.8, 0],
    "double": [0.1, -1.7976931348623157e308, 1 / 3],
    "bit(1)": [b"\x01", b"\x00"],
    "bit(12)": [b"\x0a\xbc"],
    "bit(64)": [b"\xff" * 8],
    "year": [1901, 2155, 0],
}
TIMES: dict[str, list[object]] = {
    "date": ["1000-01-01", "9999-12-31", "0000-00-00", "2024-00-00", "2024-02-29"],
    **{
        f"datetime({n})": ["1000-01-01 00:00:00", "9999-12-31 23:59:59", "2024-01-01 01:02:03.987654", "0000-00-00"]
        for n in (0, 1, 2, 3, 4, 5, 6)
    },
    **{
        f"timestamp({n}) NULL": [
            "1970-01-01 00:00:01",
            "2038-01-19 03:14:07",
            "2024-06-01 12:30:00.123456",
            "0000-00-00",
        ]
        for n in (0, 1, 3, 6)
    },
    **{
        f"time({n})": ["00:00:00", "-838:59:59", "838:59:59", "-00:00:01.5", "-12:34:56.789123", "25:00:00.000001"]
        for n in (0, 1, 2, 3, 4, 6)
    },
}
TEXTS: dict[str, list[object]] = {
    "char(10)": ["", "fern", "two  words  "],
    "char(255) CHARACTER SET utf8mb4": ["\U0001f33f" * 255, "a"],
    "varchar(10)": ["", "fern ", "\U0001f33f"],
    "varchar(300)": ["\u0416" * 300],
    "varchar(20) CHARACTER SET latin1": ["\u20acuro \u201cé\u201d"],
    "varchar(20) CHARACTER SET cp1251": ["\u0416\u0443\u043a"],
    "varchar(20) CHARACTER SET sjis": ["\u65e5\u672c"],
    "varchar(20) CHARACTER SET utf16": ["a\U0001f33fb"],
    "text CHARACTER SET ucs2": ["\u65e5\u672c"],
    "char(5) CHARACTER SET ascii": ["moss"],
    "tinytext": ["x" * 255],
    "text": ["\u00fc" * 1000, "line\nline\0end"],
    "mediumtext": ["y" * 70_000],
    "longtext": ["z"],
    "enum('fern', 'moss', 'it''s, this')": ["fern", "it's, this", ""],
    "enum('\u00e9', 'b') CHARACTER SET latin1": ["\u00e9", "b"],
    "set('a', 'b', 'c')": ["a,c", "", "b"],
    "set('\u00fc', 'o') CHARACTER SET latin1": ["\u00fc,o"],
    "json": [
        '{"a": [1, 2.5, null, true, "\u00fc", {"b": -9007199254740993}]}',
        "[]",
        '"text"',
        "null",
        "18446744073709551615",
    ],
    "binary(4)": [b"\0\1\0\0", b"\xff", b""],
    "varbinary(300)": [b"", b"\0\xff\0"],
    "tinyblob": [b"\0"],
    "blob": [bytes(range(256))],
    "mediumblob": [b"\xfe" * 70_000],
    "longblob": [b"b"],
    "varchar(10) COLLATE utf8mb4_bin": ["Bin"],
}
MARIADB: dict[str, list[object]] = {
    "uuid": [
        "123e4567-e89b-12d3-a456-426655440000",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "0191e4a8-7c1e-7b2a-9c3d-1f2e3d4c5b6a",
        "1b4e28ba-2fa1-41d2-083f-0016d3cca427",
    ],
    "inet6": ["2001:db8::ff00:42:8329", "::", "::ffff:192.0.2.128", "::1.2.3.4", "1::"],
    "inet4": ["192.0.2.1", "0.0.0.0"],
}


def test_values_of_all_types_are_the_same_in_the_table_in_the_log_and_for_the_reader_of_tables(
    database: Database,
) -> None:
    types = {**NUMBERS, **TIMES, **TEXTS, **(MARIADB if database.is_mariadb else {})}
    columns = {f"c{n}": dtype for n, dtype in enumerate(types)}
    declared = ", ".join(f"{name} {dtype}" for name, dtype in columns.items())
    database.execute(
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE plants (id int PRIMARY KEY, n int, {declared}, place point, "
        "twice int AS (id * 2) VIRTUAL, thrice int AS (id * 3) STORED)",
    )

    def insert(key: int) -> None:
        for number in range(max(len(values) for values in types.values())):
            given = [values[number % len(values)] for values in types.values()]
            names = ", ".join(columns)
            marks = ", ".join(["%s"] * len(columns))
            statement = f"INSERT INTO plants (id, n, {names}, place) VALUES (%s, 0, {marks}, point(1, 2))"  # noqa: S608 (a test's own)
            database.cursor.execute(statement, (key + number, *given))
        database.cursor.execute("INSERT INTO plants (id, n) VALUES (%s, 0)", (key + number + 1,))

    insert(0)
    world = database.world()
    worker = world.worker()
    catch_up(world, worker, database)
    loaded = {row["after"]["id"]: row["after"] for row in world.envelopes}
    count = len(loaded)
    insert(1000)
    catch_up(world, worker, database)
    world.kill()
    logged = {row["after"]["id"] - 1000: row["after"] for row in world.envelopes[count:]}
    assert loaded.keys() == logged.keys() == set(range(count))
    read = read_by_cursor(database, "plants")
    for key, row in loaded.items():
        for name, value in row.items():
            dtype = columns.get(name, name)
            if name == COMMITTED_AT:
                # The load has the time of the start, and the log a later one if a second of the clock has begun since.
                assert value <= logged[key][name]
            elif isinstance(value, str) and dtype.startswith(("date", "timestamp")):
                # The library of the log tells only that it is a zero date. Both texts become dead letters.
                assert logged[key][name] == ZERO_DATE
            elif name != "id":
                assert (dtype, value) == (dtype, logged[key][name])
                assert type(value) is type(logged[key][name]), dtype
                # The reader of tables refuses zero dates. Here they stay texts, which become dead letters.
                assert read[key].get(name, value) == value, dtype
    assert isinstance(loaded[0][next(iter(columns))], int)
    assert {"place", "n", "id"} < loaded[0].keys()
    assert not {"twice", "thrice"} & loaded[0].keys()


def read_by_cursor(database: Database, table: str) -> dict[int, dict[str, object]]:
    """Return the rows of a table, by id, as the reader of tables has them, without the values that it refuses."""
    connector = TableConnector(system=database.system(), table=table, cursor="id")
    with closing(MySQLTable(connector, database.world(table).context())) as found:
        shape = found.shape()
        page = Page(columns=list(shape.columns), keys=1, least=None, most=10**6, after=None, limit=10_000)
        rows = [row for chunk in found.rows(page) for row in chunk]
    read: dict[int, dict[str, object]] = {}
    for row in rows:
        values = read.setdefault(row[0], {})
        for column, value in zip(shape.columns.values(), row, strict=True):
            with suppress(ValueError):
                values[column.name] = value if value is None or not column.convert else column.convert(value)
    return read


def reader_of(world: World) -> CaptureReader:
    connector = world.dataset.sources[0].connector
    assert isinstance(connector, CaptureConnector)
    return CaptureReader(connector, world.context())


PLAIN = "(id int PRIMARY KEY, kind int)"


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ([], "there is no table .*plants"),
        (["CREATE VIEW plants AS SELECT 1 AS id"], "is a view"),
        (["CREATE TABLE plants (id int)"], "ADD PRIMARY KEY"),
        ([f"CREATE TABLE plants {PLAIN} ENGINE = MyISAM"], "ENGINE = InnoDB"),
        (["CREATE TABLE plants (id enum('a') PRIMARY KEY)"], "by which rows can't be ordered"),
        (["CREATE TABLE plants (id int PRIMARY KEY, kind text CHARACTER SET dec8)"], "CONVERT TO CHARACTER SET"),
        (["CREATE TABLE plants (id text, PRIMARY KEY (id(5)))"], "by which rows can't be ordered"),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused_with_the_remedy(
    database: Database, statements: list[str], said: str
) -> None:
    database.execute(*statements)
    with closing(reader_of(database.world())) as opened, pytest.raises(UnavailableError, match=said):
        opened.peek(3)


def test_a_table_whose_rows_a_foreign_key_changes_without_the_log_is_refused(database: Database) -> None:
    """InnoDB deletes them itself. MySQL has no such deletes any more since 9.6."""
    database.execute(
        "CREATE TABLE kinds (kind varchar(20) PRIMARY KEY)",
        "CREATE TABLE plants (id int PRIMARY KEY, kind varchar(20), FOREIGN KEY (kind) REFERENCES kinds (kind) "
        "ON DELETE CASCADE)",
        "INSERT INTO kinds VALUES ('fern')",
        "INSERT INTO plants VALUES (1, 'fern')",
    )
    world = World(plants(database.system(), "plants"))
    with closing(reader_of(world)) as opened:
        if database.is_mariadb:
            with pytest.raises(UnavailableError, match="CASCADE"):
                opened.peek(3)
            return
        assert len(opened.peek(3).rows) == 1
    database.execute("ALTER TABLE plants ADD COLUMN note text, ADD COLUMN size decimal(10, 2)")
    worker = world.worker()
    catch_up(world, worker, database)
    assert world.rows()
    database.execute("DELETE FROM kinds")
    check(world, worker, database)
    assert not world.rows()
    world.kill()


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
    ],
)
def test_a_server_that_logs_too_little_is_refused_with_the_statement_that_changes_it(
    database: Database, name: str, wrong: str, right: str
) -> None:
    database.execute(TABLE, f"SET GLOBAL {name} = {wrong}")
    try:
        with closing(reader_of(database.world())) as opened, pytest.raises(UnavailableError, match=name) as raised:
            opened.peek(3)
    finally:
        database.execute(str(raised.value).split("`")[1])
    assert database.execute(f"SELECT @@global.{name}") == [(right,)]
    with closing(reader_of(database.world())) as opened:
        opened.peek(3)


def test_a_trial_shows_rows_and_needs_the_rights(database: Database) -> None:
    database.execute(TABLE)
    database.fill(5)
    user = f"reader_{os.urandom(4).hex()}"
    database.execute(f"CREATE USER {user} IDENTIFIED BY 'pw'", f"GRANT SELECT ON {database.name}.plants TO {user}")
    remedies = {
        "REPLICATION CLIENT": "GRANT REPLICATION SLAVE, REPLICATION CLIENT",
        **({} if database.is_mariadb else {"XA_RECOVER_ADMIN": "GRANT XA_RECOVER_ADMIN"}),
        "REPLICATION SLAVE": "GRANT REPLICATION SLAVE, REPLICATION CLIENT",
    }
    for granted, said in remedies.items():
        with (
            closing(reader_of(database.world(username=user, password="pw"))) as opened,
            pytest.raises(UnavailableError, match=said),
        ):
            opened.peek(3)
        database.execute(f"GRANT {granted} ON *.* TO {user}")
    with closing(reader_of(database.world(username=user, password="pw"))) as opened:
        assert len(opened.peek(3).rows) == 3
    with (
        closing(reader_of(database.world(username=user, password="wrong"))) as opened,
        pytest.raises(UnavailableError, match="correct the user's name or password"),
    ):
        opened.peek(3)
    database.execute(f"DROP USER {user}")


def test_logs_that_were_removed_before_they_were_read_are_an_error(database: Database) -> None:
    database.execute(TABLE)
    database.fill(10)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    worker.stop()
    database.execute("FLUSH BINARY LOGS", "DELETE FROM plants WHERE id < 5", "FLUSH BINARY LOGS")
    kept = database.end()[0]
    deadline = deadline_in(30)
    # The server keeps a log for a connection until it notices that it has ended.
    while database.execute("SHOW BINARY LOGS")[0][0] != f"binlog.{kept:06d}":
        assert time.monotonic() < deadline
        database.execute(f"PURGE BINARY LOGS TO 'binlog.{kept:06d}'")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"has removed the binary log .*raise the version of the dataset"):
            world.worker().step()
    assert len(world.rows()) == 10


def test_logs_that_were_reset_are_not_taken_for_those_that_were_read(database: Database) -> None:
    database.execute(TABLE)
    database.fill(10)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    worker.stop()
    assert world.saved is not None
    number, position = world.saved.position["at"]
    # The new log has the same name, and is longer.
    database.execute("RESET MASTER" if database.is_mariadb else "RESET BINARY LOGS AND GTIDS")
    for _ in range(number - 1):
        database.execute("FLUSH BINARY LOGS")
    while database.end() <= [number, position]:
        database.execute(
            "INSERT INTO plants (id, note) SELECT coalesce(max(id), 0) + 1, repeat('x', 10000) FROM plants"
        )
    # If no event begins at the position, the server tells what it makes of the bytes there.
    with pytest.raises(UnavailableError, match=r"RESET MASTER.* raise the version of the dataset"):
        keep_on(world, world.worker())


@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME TABLE plants TO old, new TO plants"],
        ["ALTER TABLE plants RENAME TO old", "ALTER TABLE new RENAME plants"],
        ["ALTER TABLE plants TRUNCATE PARTITION p1"],
        ["ALTER TABLE plants EXCHANGE PARTITION p0 WITH TABLE single"],
        ["SET SESSION binlog_format = STATEMENT", "INSERT INTO plants (id) VALUES (1000)"],
        [
            "SELECT 1000 INTO OUTFILE 'rows'",
            "SET SESSION binlog_format = STATEMENT",
            "LOAD DATA INFILE 'rows' INTO TABLE plants (id)",
        ],
    ],
)
def test_rows_that_change_without_being_logged_are_an_error_behind_all_that_came_before(
    database: Database, statements: list[str]
) -> None:
    parts = " PARTITION BY HASH (id) PARTITIONS 2"
    if "TRUNCATE PARTITION" in statements[0]:
        parts = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    database.execute(TABLE + parts, f"{TABLE.replace('plants', 'new')}", TABLE.replace("plants", "single"))
    database.fill(20)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    database.execute("DELETE FROM plants WHERE id > 18", *statements)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="without logging them; raise the version of the dataset"):
            keep_on(world, worker)
        assert sorted(world.rows()) == list(range(1, 19))
        worker = world.worker()
    database.execute("SET SESSION binlog_format = ROW")
    world.kill()


def prepare(client: Cursor, xid: str, statement: str) -> None:
    for each in (f"XA START '{xid}'", statement, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
        client.execute(each)


@pytest.mark.parametrize("kept_bytes", [10**6, 10])
def test_a_prepared_transaction_that_changes_the_table_is_an_error_behind_all_that_came_before(
    database: Database, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "KEPT_BYTES", kept_bytes)
    database.execute(TABLE, "CREATE TABLE ledger (id int)")
    database.fill(20)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    client = database.connect(database.name)
    # Those of other tables, and those that are committed in one phase, are read.
    prepare(client, f"{database.name} 1", "INSERT INTO ledger VALUES (1)")
    client.execute(f"XA COMMIT '{database.name} 1'")
    check(world, worker, database)
    database.execute("DELETE FROM plants WHERE id > 18")
    prepare(client, f"{database.name} 2", "DELETE FROM plants WHERE id < 3")
    said = rf"binlog\.\d+ at \d+: the transaction {database.name} 2 of XA .* commit in one phase; raise the version"
    for verb in (None, "COMMIT"):
        if verb is not None:
            client.execute(f"XA {verb} '{database.name} 2'")
        for _ in range(2):
            with pytest.raises(UnavailableError, match=said):
                keep_on(world, worker)
            assert sorted(world.rows()) == list(range(1, 19))
            worker = world.worker()
    # The next version of the dataset loads the table anew.
    world = database.world()
    check(world, world.worker(), database)
    assert sorted(world.rows()) == list(range(3, 19))
    world.kill()


def test_a_load_waits_for_transactions_that_were_prepared_before_it_and_for_no_later_ones(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(TABLE)
    database.fill(1500)
    older, later = (database.connect(database.name) for _ in range(2))
    prepare(older, f"{database.name} 1", "DELETE FROM plants WHERE id = 7")
    world = database.world()
    with monkeypatch.context() as patched:
        patched.setattr(log, "OLDER_S", 0.0)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"waits for transactions of XA .* commit them or roll"):
                keep_on(world, world.worker())
    worker = world.worker()
    for _ in range(10):
        worker.step()
    # A transaction without changes isn't in the log.
    prepare(later, f"{database.name} 2", "DELETE FROM plants WHERE id = 9999")
    for _ in range(10):
        worker.step()
    assert not world.rows()
    older.execute(f"XA COMMIT '{database.name} 1'")
    check(world, worker, database)
    later.execute(f"XA COMMIT '{database.name} 2'")
    check(world, worker, database)
    assert len(world.rows()) == 1499
    # The commit is read once more, from a position before it.
    world.kill()
    check(world, world.worker(), database)
    world.kill()


def test_compressed_changes_of_the_table_are_an_error_behind_all_that_came_before(database: Database) -> None:
    name = "log_bin_compress" if database.is_mariadb else "binlog_transaction_compression"
    database.execute(TABLE, "CREATE TABLE ledger (id int, note text)")
    database.fill(20)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    try:
        database.execute(f"SET GLOBAL {name} = ON")
        database.cursor = database.connect(database.name)
        with pytest.raises(UnavailableError, match=f"SET GLOBAL {name} = OFF"):
            database.world().worker().step()
        if database.is_mariadb:
            # MySQL compresses whole transactions, also those of several tables.
            database.execute("INSERT INTO ledger VALUES (1, repeat('moss', 1000))")
            check(world, worker, database)
        database.execute("DELETE FROM plants WHERE id > 19")
        database.execute("UPDATE plants SET note = repeat('moss', 1000) WHERE id = 1")
    finally:
        database.execute(f"SET GLOBAL {name} = OFF")
    database.cursor = database.connect(database.name)
    database.execute("UPDATE plants SET kind = 'ivy' WHERE id = 2")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=rf"binlog\.\d+ at \d+: .* is compressed; run `SET GLOBAL {name}"):
            keep_on(world, worker)
        assert world.rows()[2][0] == "kind 2"
        worker = world.worker()
    world = database.world()
    check(world, world.worker(), database)
    world.kill()


def test_a_log_that_was_written_with_other_checksums_is_an_error_until_they_are_set_back(database: Database) -> None:
    database.execute(TABLE)
    database.fill(20)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    worker.stop()
    ((before,),) = database.execute("SELECT @@global.binlog_checksum")
    after = "NONE" if before == "CRC32" else "CRC32"
    database.execute("DELETE FROM plants WHERE id > 10")
    try:
        database.execute(f"SET GLOBAL binlog_checksum = {after}", "DELETE FROM plants WHERE id > 5")
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"checksum"):
                keep_on(world, world.worker())
            assert len(world.rows()) == 20
    finally:
        database.execute(f"SET GLOBAL binlog_checksum = {before}")
    with pytest.raises(UnavailableError, match=f"SET GLOBAL binlog_checksum = {after}"):
        keep_on(world, world.worker())
    assert len(world.rows()) == 10


def test_a_zero_date_in_the_key_is_an_error(database: Database) -> None:
    database.execute(
        "SET SESSION sql_mode = ''", "CREATE TABLE plants (id int, day date, kind text, PRIMARY KEY (id, day))"
    )
    world = database.world()
    worker = world.worker()
    catch_up(world, worker, database)
    database.execute("INSERT INTO plants VALUES (1, '2024-05-01', 'fern'), (2, 0, 'moss')")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="its primary key has a zero date; correct the row in the table"):
            keep_on(world, worker)
        assert sorted(world.rows()) == [1]
        worker = world.worker()
    world.kill()


def test_a_connection_that_is_cut_within_a_transaction_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "KEPT_BYTES", 10_000)
    database.execute(TABLE)
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    world.most_rows = lambda: 700
    database.execute("BEGIN")
    database.fill(5000)
    database.execute("COMMIT", "UPDATE plants SET size = 1 WHERE id < 100")
    cuts = 0
    for _ in range(2000):
        world.now += 0.4
        try:
            worker.step()
        except UnavailableError:
            worker = world.worker()
            continue
        if cuts < 4 and len(world.rows()) > 700 * cuts:
            cuts += 1
            for number, command in database.execute("SELECT id, command FROM information_schema.processlist"):
                if command == "Binlog Dump":
                    # A connection that was closed before is listed until its thread has ended.
                    with suppress(pymysql.err.OperationalError):
                        database.execute(f"KILL {number}")
        if cuts == 4 and world.rows() == database.rows():
            break
    assert cuts == 4
    assert world.rows() == database.rows()
    marks = len(world.topics[world.plan.topic.name])
    # One row had this size before.
    assert marks == 5000 + 98
    world.kill()


def test_a_server_that_is_killed_goes_on(database: Database) -> None:
    database.execute(TABLE)
    database.fill(3000)
    world = database.world()
    world.most_rows = lambda: 700
    worker = world.worker()
    for number in range(3):
        for _ in range(3):
            world.now += 0.4
            worker.step()
        database.execute("UPDATE plants SET size = size + 1 WHERE id % 7 = 1", "DELETE FROM plants WHERE id % 13 = 1")
        database.server.kill()
        with pytest.raises(UnavailableError):
            keep_on(world, worker)
        database.server.start()
        database.cursor = database.connect(database.name)
        database.cursor.execute("INSERT INTO plants (id) VALUES (%s)", (10_000 + number,))
        worker = world.worker()
    check(world, worker, database)
    world.kill()


def test_envelopes_are_those_of_debezium(database: Database) -> None:
    """See "Data change events" of Debezium's connectors for MySQL and MariaDB: op, before, after, source."""
    database.execute(TABLE, "INSERT INTO plants VALUES (1, 'fern', NULL, 1.5)")
    world = database.world()
    world.dataset = replace(world.dataset, sources=(replace(world.dataset.sources[0], preproc=()),))
    worker = world.worker()
    catch_up(world, worker, database)
    database.execute(
        "INSERT INTO plants (id, kind) VALUES (2, 'moss')",
        "UPDATE plants SET kind = 'ivy' WHERE id = 1",
        "UPDATE plants SET id = 3 WHERE id = 1",
        "DELETE FROM plants WHERE id = 2",
    )
    catch_up(world, worker, database)
    fern = {"id": 1, "kind": "fern", "note": None, "size": Decimal("1.50")}
    moss = {"id": 2, "kind": "moss", "note": None, "size": None}
    ivy = {**fern, "kind": "ivy"}
    assert [(each["op"], each["before"], each["after"]) for each in world.envelopes] == [
        ("r", None, fern),
        ("c", None, moss),
        # The row before isn't repeated if its key is the same.
        ("u", None, ivy),
        ("u", ivy, {**ivy, "id": 3}),
        ("d", moss, None),
    ]
    assert world.envelopes[0]["source"].keys() == {"snapshot", "ts_ms", "ts_us"}
    assert world.envelopes[1]["source"].keys() == {"file", "pos", "gtid", "server_id", "ts_ms", "ts_us"}
    assert world.saved is not None
    connector = world.dataset.sources[0].connector
    assert isinstance(connector, CaptureConnector)
    # Nothing was made on the server.
    forget(connector, world.context(), world.saved.position)
    world.kill()


def test_clocks_that_jump_do_not_put_changes_out_of_order(database: Database) -> None:
    database.execute(TABLE, "INSERT INTO plants (id, kind) VALUES (1, 'fern')")
    world = database.world()
    worker = world.worker()
    check(world, worker, database)
    for kind, at in (("moss", 4_000_000_000 if database.is_mariadb else 2_000_000_000), ("ivy", 1_000_000_000)):
        with suppress(pymysql.Error):
            # MariaDB before 11.5 knows no time behind 2038.
            database.execute(f"SET SESSION timestamp = {at}")
        database.cursor.execute("UPDATE plants SET kind = %s", (kind,))
        check(world, worker, database)
        assert world.rows()[1][0] == kind
    database.execute("SET SESSION timestamp = 1900000000", "UPDATE plants SET kind = 'rush'")
    check(world, worker, database)
    now_us = time.time_ns() // 1000
    assert all(at_us <= now_us for at_us, _ in world.newest().values())
    world.kill()


def test_a_key_of_several_columns_is_loaded_in_its_order(database: Database) -> None:
    database.execute(
        "CREATE TABLE plants (kind varchar(20), day date, id int, place varbinary(8), note text, size decimal(10, 2), "
        "PRIMARY KEY (kind, day, id, place))"
    )
    chance = random.Random(5)
    rows = {
        (
            chance.choice(["a", "B", "c", "\u00e9"]),
            f"2024-01-0{chance.randrange(1, 4)}",
            n // 2,
            bytes([n % 2, n % 251]),
        )
        for n in range(2500)
    }
    with database.cursor.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO plants (kind, day, id, place) VALUES (%s, %s, %s, %s)", list(rows))
    with closing(reader_of(database.world())) as opened:
        position = opened.seek({}, {})
        found: list[Any] = []
        while "snapshot" in position or "at" not in position:
            batch = opened.poll(rows=10_000, size=1 << 22, timeout_s=0.01)
            if batch is not None:
                position = batch.position
                found += [batch.rows.row(n) for n in range(len(batch.rows))]
    keys = [
        (row["after"]["kind"], str(row["after"]["day"]), row["after"]["id"], row["after"]["place"]) for row in found
    ]
    assert len(keys) == len(rows)
    assert set(keys) == rows
