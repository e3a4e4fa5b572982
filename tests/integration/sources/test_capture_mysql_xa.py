"""The load of a MySQL or MariaDB table while transactions of XA are prepared and end at other moments of the load."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pymysql
import pytest

from caraway.errors import UnavailableError
from caraway.ingest.sources.capture import reader
from caraway.ingest.sources.capture.mysql import log, prepared, stream, transactions
from caraway.ingest.sources.worker import SourceWorker
from tests.integration.sources.capture_world import World
from tests.integration.sources.mysql_database import TABLE, Database, catch_up, check
from tests.services.mariadb import MariaDB
from tests.services.mysql import running_mysql
from tests.timeouts import deadline_in
from tests.unit.leased import KilledError

# XA_RBROLLBACK, and XAER_NOTA.
ROLLED_BACK = (1402, 1397)
# Clients that write all the time wait while the reader is so far behind them.
NEAR_BYTES = 500_000
FULL = pytest.mark.full(reason="a MySQL server is fetched and started; CI has MariaDB")


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=FULL)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    if request.param == "mariadb":
        yield request.getfixturevalue("mariadb")
        return
    with running_mysql(tmp_path_factory.mktemp("mysql")) as server:
        yield server


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server say often that it has nothing more, and chunks so small that a load has many."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(reader, "QUIET_S", 0.0)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 100)


@pytest.fixture
def database(server: MariaDB) -> Iterator[Database]:
    database = Database(server)
    database.execute(TABLE)
    yield database
    # A transaction that is left would keep the table, and hold up the loads of other tests.
    for format_id, size, _, data in database.execute("XA RECOVER"):
        name = data.decode() if isinstance(data, bytes) else data
        if name.startswith(database.name):
            assert (format_id, size) == (1, len(name))
            try:
                database.execute(f"XA ROLLBACK '{name}'")
            except pymysql.OperationalError as error:
                # The connection of its client is lost by now.
                if error.args[0] not in ROLLED_BACK:
                    raise
    database.execute(f"DROP DATABASE {database.name}")
    database.cursor.connection.close()


class Client:
    """A client that changes only rows of its own, so that it never waits for another client's transaction."""

    def __init__(self, database: Database, chance: random.Random, number: int, of: int, keys: int) -> None:
        self._database = database
        self._chance = chance
        self._keys = range(number, keys, of)
        self._name = f"{database.name}-{number}-"
        self._count = 0
        #: The number of rows that the transaction has changed.
        self.changed = 0
        self._died = False
        #: The transaction that is prepared, if any.
        self.xid: str | None = None
        self._connect()

    def _connect(self) -> None:
        self._cursor = self._database.connect(self._database.name)
        # Gaps between keys aren't locked then.
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def step(self) -> None:
        """Run a transaction, or a part of one."""
        if self.xid is None:
            self._chance.choice([self._transaction, self.prepare, self.prepare])()
        else:
            self._chance.choice([self.die, lambda: self.end("COMMIT"), lambda: self.end("COMMIT"), self.roll_back])()

    def _transaction(self) -> None:
        self._cursor.execute("BEGIN")
        self._change()
        self._cursor.execute(self._chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))

    def prepare(self) -> None:
        """Prepare changes, or commit them in one phase."""
        self._count += 1
        self.changed, self._died = 0, False
        xid = f"'{self._name}{self._count}'"
        self._cursor.execute(f"XA START {xid}")
        self._change()
        self._cursor.execute(f"XA END {xid}")
        if self._chance.random() < 0.1:
            self._cursor.execute(f"XA COMMIT {xid} ONE PHASE")
        else:
            self._cursor.execute(f"XA PREPARE {xid}")
            self.xid = xid

    def roll_back(self) -> None:
        """Roll the prepared changes back."""
        self.end("ROLLBACK")

    def end(self, verb: str) -> None:
        """Commit the prepared changes, or roll them back."""
        try:
            self._cursor.execute(f"XA {verb} {self.xid}")
        except pymysql.OperationalError as error:
            # A server ends a transaction that has changed nothing when its connection is lost.
            if self.changed or not self._died or error.args[0] not in ROLLED_BACK:
                raise
        self.xid = None

    def die(self) -> None:
        """Lose the connection, which may have a prepared transaction. The next one may end that."""
        number = self._cursor.connection.thread_id()  # type: ignore[no-untyped-call]  # the stubs lack it
        other = self._database.connect(None)
        other.execute("KILL %s", (number,))
        deadline = deadline_in(30)
        # The server needs a moment to let go of the transaction.
        while other.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (number,)):
            assert time.monotonic() < deadline
        other.connection.close()
        self._connect()
        self._died = True

    def _change(self) -> None:
        for _ in range(self._chance.choice([1, 4, 20])):
            with suppress(pymysql.IntegrityError):
                self._change_rows()
                self.changed += self._cursor.rowcount

    def _change_rows(self) -> None:
        chance, run = self._chance, self._cursor.execute
        key, kind, size = chance.choice(self._keys), f"kind {chance.random()}", chance.randrange(10_000) / 100
        match chance.randrange(5):
            case 0:
                run("INSERT INTO plants (id, kind, size) VALUES (%s, %s, %s)", (key, kind, size))
            case 1:
                run("UPDATE plants SET id = %s WHERE id = %s", (chance.choice(self._keys), key))
            case 2:
                run("DELETE FROM plants WHERE id = %s", (key,))
            case _:
                keys = chance.sample(self._keys, 20)
                run("UPDATE plants SET kind = %s, size = %s WHERE id IN %s", (kind, size, keys))


def clients_of(database: Database, seed: int, *, rows: int, count: int = 3) -> list[Client]:
    return [Client(database, random.Random(f"{seed} {n}"), n, count, 2 * rows) for n in range(count)]


def steps(world: World, worker: SourceWorker, until: Callable[[], object], *, seconds: float = 60) -> None:
    """Run a worker until something is true."""
    deadline = deadline_in(seconds)
    while not until():
        assert time.monotonic() < deadline
        world.now += 0.4
        worker.step()


def is_loaded(worker: SourceWorker) -> bool:
    return "at" in worker.position and "snapshot" not in worker.position


@pytest.mark.parametrize(("dies", "verb"), [(False, "COMMIT"), (False, "ROLLBACK"), (True, "COMMIT")])
def test_a_transaction_that_is_prepared_before_a_chunk_and_ends_behind_the_load(
    database: Database, dies: bool, verb: str
) -> None:
    database.fill(2000)
    world = database.world()
    worker = world.worker()
    steps(world, worker, world.rows)
    assert not is_loaded(worker)
    (client,) = clients_of(database, 1, rows=2000, count=1)
    while client.xid is None:
        client.prepare()
    steps(world, worker, lambda: is_loaded(worker))
    check(world, worker, database)
    before = database.rows()
    if dies:
        client.die()
        check(world, worker, database)
    client.end(verb)
    check(world, worker, database)
    assert (world.rows() == before) == (verb == "ROLLBACK")
    world.kill()


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
def test_a_load_waits_for_a_transaction_that_was_prepared_before_it_and_says_so(
    database: Database, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "OLDER_S", 0.0)
    database.fill(1500)
    (client,) = clients_of(database, 2, rows=1500, count=1)
    while client.xid is None:
        client.prepare()
    client.die()
    world = database.world()
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"waits for transactions of XA .* commit them or roll them back"):
            steps(world, world.worker(), lambda: False)
    assert not world.rows()
    client.end(verb)
    worker = world.worker()
    check(world, worker, database)
    # Its commit may be read once more, from a position before it.
    world.kill()
    check(world, world.worker(), database)
    world.kill()


def test_a_load_waits_for_no_transaction_that_has_changed_nothing_and_was_prepared_after_it_began(
    database: Database,
) -> None:
    database.fill(1500)
    clients = [database.connect(database.name) for _ in range(3)]
    changes = [f"XA {{}} '{database.name}-{number}'" for number in range(3)]

    def prepare(number: int, key: int) -> None:
        clients[number].execute(changes[number].format("START"))
        clients[number].execute("DELETE FROM plants WHERE id = %s", (key,))
        clients[number].execute(changes[number].format("END"))
        clients[number].execute(changes[number].format("PREPARE"))

    prepare(0, 7)
    prepare(1, 9_999)
    world = database.world()
    worker = world.worker()
    waited = deadline_in(2 * prepared.LISTED_S)
    steps(world, worker, lambda: time.monotonic() > waited)
    prepare(2, 9_998)
    clients[1].execute(changes[1].format("COMMIT"))
    assert not is_loaded(worker)
    assert not world.rows()
    clients[0].execute(changes[0].format("COMMIT"))
    steps(world, worker, lambda: is_loaded(worker))
    check(world, worker, database)
    clients[2].execute(changes[2].format("COMMIT"))
    check(world, worker, database)
    assert len(world.rows()) == 1499
    world.kill()


def test_no_chunk_is_read_while_the_server_lists_a_transaction_whose_changes_were_read(database: Database) -> None:
    """MariaDB may list it behind the commit in the log. That moment is short, so another one of its name stands in."""
    if not database.is_mariadb:
        pytest.skip("MySQL counts a GTID when the engine has committed")
    database.fill(4000)
    world = database.world()
    worker = world.worker()
    steps(world, worker, world.rows)
    client = database.connect(database.name)
    change = f"XA {{}} '{database.name}'"

    def prepare(size: int) -> None:
        client.execute(change.format("START"))
        client.execute("UPDATE plants SET size = %s WHERE id IN (1, 3900)", (size,))
        client.execute(change.format("END"))
        client.execute(change.format("PREPARE"))

    prepare(7)
    client.execute(change.format("COMMIT"))
    prepare(8)
    steps(world, worker, lambda: world.rows()[1][2] == "7.00")
    # A chunk that was read before the commit is still handed over.
    for _ in range(10):
        worker.step()
    chunk = worker.position["snapshot"]["chunk"]
    for _ in range(20):
        worker.step()
    assert worker.position["snapshot"]["chunk"] == chunk
    client.execute(change.format("COMMIT"))
    steps(world, worker, lambda: is_loaded(worker))
    check(world, worker, database)
    assert world.rows()[3900][2] == "8.00"
    world.kill()


def check_trace(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch, *, rows: int, rounds: int) -> None:
    """Run clients and a worker, a step at a time; kill the worker now and then; compare at the end of each round."""
    monkeypatch.setattr(log, "OLDER_S", 1e9)
    if seed % 2:
        # Larger transactions are read twice.
        monkeypatch.setattr(transactions, "KEPT_BYTES", 500)
    chance = random.Random(seed)
    database.fill(rows)
    clients = clients_of(database, seed, rows=rows)
    for client in clients[1:]:
        # They are prepared before the load.
        client.step()
    older = [client for client in clients if client.xid is not None]
    world = database.world()
    world.most_rows = lambda: chance.choice([3, 50, 1_000])
    worker = world.worker()
    # The log begins here, so that the others aren't prepared before the load.
    steps(world, worker, lambda: "at" in worker.position)
    for number in range(rounds):
        for _ in range(10):
            for client in chance.choices(clients, k=chance.randrange(4)):
                client.step()
            world.fuse = chance.choice([10**9, 10**9, chance.randrange(5), chance.randrange(300)])
            world.now += chance.choice([0.1, 0.4, 2.0])
            try:
                worker.step()
            except KilledError:
                world.kill()
                world.fuse = 10**9
                worker = world.worker()
        world.fuse = 10**9
        if not number:
            # A transaction that changes nothing isn't in the log, so that those of the first second may be older, too.
            for client in clients:
                if client.xid is not None and (client in older or not client.changed):
                    client.end(chance.choice(["COMMIT", "ROLLBACK"]))
        check(world, worker, database)
    world.kill()


@pytest.mark.parametrize("seed", range(2))
def test_random_transactions_during_a_load(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_trace(database, seed, monkeypatch, rows=1500, rounds=3)


@pytest.mark.full(reason="ten traces of twenty rounds each, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 110))
def test_long_random_transactions(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_trace(database, seed, monkeypatch, rows=5000, rounds=20)


@pytest.mark.full(reason="loads of 60,000 rows beside three clients that write all the time, for some minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(200, 203))
def test_clients_that_write_at_the_same_time(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 2_000)
    database.fill(60_000)
    clients = clients_of(database, seed, rows=30_000)
    stop = threading.Event()
    failed: list[BaseException] = []
    # A load ends only if the log is read faster than it grows.
    is_near = threading.Event()

    def write(client: Client) -> None:
        try:
            while not stop.is_set():
                is_near.wait()
                client.step()
            if client.xid is not None:
                client.end("COMMIT")
        except BaseException as error:
            failed.append(error)
            raise

    world = database.world()
    worker = world.worker()
    threads = [threading.Thread(target=write, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:

        def is_through() -> bool:
            file, end = database.log_end()
            at = worker.position.get("at", [file, 0])
            if at[0] == file and end < at[1] + NEAR_BYTES:
                is_near.set()
            else:
                is_near.clear()
            return is_loaded(worker)

        steps(world, worker, is_through, seconds=600)
    finally:
        stop.set()
        is_near.set()
        for thread in threads:
            thread.join()
    assert not failed
    catch_up(world, worker, database)
    assert world.rows() == database.rows()
    world.kill()
