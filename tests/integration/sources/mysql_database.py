"""A database on a real MariaDB or MySQL server, whose table a worker captures into a dataset in memory."""

import os
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from caraway.dataplane.sources.worker import SourceWorker
from caraway.graph.systems import MySQLSystem
from tests.integration.sources.capture_world import World, plants
from tests.services.mariadb import PASSWORD, USER, MariaDB
from tests.services.mysql import MySQL

TABLE = "CREATE TABLE plants (id int PRIMARY KEY, kind text, note text, size decimal(10, 2))"


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
        return self.log_end()

    def log_end(self) -> list[int]:
        """Return the end of the log: the number of the file, and the position in it."""
        found = self.execute("SHOW MASTER STATUS" if self.is_mariadb else "SHOW BINARY LOG STATUS")[0]
        return [int(found[0].rpartition(".")[2]), int(found[1])]


def catch_up(world: World, worker: SourceWorker, database: Database) -> None:
    """Run a worker until it has read all that was committed."""
    end = database.end()
    for _ in range(3000):
        world.now += 0.4
        assert worker.step()
        if worker.lag == 0 and worker.position["at"] >= end:
            return
    raise AssertionError((worker.lag, worker.position, end))


def keep_on(world: World, worker: SourceWorker) -> None:
    """Run a worker until it fails."""
    for _ in range(1000):
        world.now += 0.4
        worker.step()


def check(world: World, worker: SourceWorker, database: Database) -> None:
    catch_up(world, worker, database)
    assert world.rows() == database.rows()
    assert not world.dead_letters
