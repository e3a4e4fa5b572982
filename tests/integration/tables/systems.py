"""Databases of real servers, and workers that read their tables into topics in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import psycopg
import pymysql
from psycopg import sql
from pymysql.constants import CLIENT, ER

from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.mysql import MySQLReader
from caraway.dataplane.sources.tables.postgres import PostgresReader
from caraway.dataplane.sources.tables.redshift import RedshiftReader
from caraway.dtypes.types import DATETIME, INT, DataType
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec
from caraway.graph.systems import MySQLSystem, PostgresSystem, RedshiftSystem, SecretRef, TableSystem
from tests.messages import records_of
from tests.services.mariadb import PASSWORD, USER, MariaDB
from tests.unit.dataplane.ingest.contexts import context_of, ingest_of
from tests.unit.dataplane.sources.test_cursor_reader import Blocks

PASSWORD_OF_READER = SecretRef(arn="env:PASSWORD")


class System(Protocol):
    """A database."""

    kind: str
    reader: type[CursorReader]
    # The readers that were made, which are closed with the database.
    opened: list[CursorReader]

    def execute(self, statement: str) -> list[Any]: ...

    def system(self, **more: Any) -> TableSystem: ...

    def user(self, name: str, password: str) -> None: ...

    def end_connections(self) -> None: ...


class Relational:
    """A database whose tables may have keys."""

    kind: str
    reader: type[CursorReader]
    opened: list[CursorReader]
    whole = "int"
    at = "at"
    hidden = ("wrong",)

    def execute(self, statement: str) -> list[Any]:
        raise NotImplementedError

    def system(self, **more: Any) -> TableSystem:
        raise NotImplementedError

    def user(self, name: str, password: str) -> None:
        raise NotImplementedError

    def end_connections(self) -> None:
        raise NotImplementedError

    def create(self, cursor: str | None = None, more: str = "", *, key: bool = False) -> None:
        columns = f"id int {'PRIMARY KEY' if key else ''}, value int, at {cursor or 'timestamp(6) NULL'}"
        self.execute(f"CREATE TABLE hives ({columns}, seen timestamp(6) NULL{more})")
        self.execute("CREATE INDEX hives_at ON hives (at)")

    def shown(self, columns: str) -> str:
        return columns


class PostgresDatabase(Relational):
    """A database of a Postgres server."""

    kind = "Postgres"
    reader: type[CursorReader] = PostgresReader

    def __init__(self, url: str) -> None:
        self.url = urlsplit(url)
        self.opened: list[CursorReader] = []
        self._connection = psycopg.connect(url, autocommit=True)

    def execute(self, statement: str) -> list[Any]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def system(self, **more: Any) -> PostgresSystem:
        of = self.url
        settings: dict[str, Any] = {
            "host": of.hostname,
            "port": of.port,
            "database": of.path[1:],
            "username": of.username,
            "password": of.password,
            **more,
        }
        return PostgresSystem(name="db", **settings)

    def user(self, name: str, password: str) -> None:
        who, secret = sql.Identifier(name), sql.Literal(password)
        exists = self._connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone()
        verb = sql.SQL("ALTER" if exists else "CREATE")
        self._connection.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, who, secret))
        self._connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}").format(who))

    def end_connections(self) -> None:
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'caraway' AND datname = current_database()"
        )

    def close(self) -> None:
        for reader in self.opened:
            reader.close()
        self._connection.close()


class RedshiftDatabase(PostgresDatabase):
    """A database of Postgres that stands in for one of Redshift."""

    kind = "Redshift"
    reader: type[CursorReader] = RedshiftReader

    @property
    def endpoints(self) -> dict[str, str]:
        return {"db": f"{self.url.hostname}:{self.url.port}"}

    def system(self, **more: Any) -> RedshiftSystem:  # type: ignore[override]  # the settings are Redshift's
        of = self.url
        settings: dict[str, Any] = {"username": of.username, "password": of.password, **more}
        host = "hives.c1abc.eu-west-1.redshift.amazonaws.com"
        return RedshiftSystem(name="db", host=host, port=5439, database=of.path[1:], schema="public", **settings)


class MariaDatabase(Relational):
    """A database of a MariaDB server."""

    kind = "MySQL"
    reader = MySQLReader

    def __init__(self, server: MariaDB, name: str) -> None:
        self._port, self._name = server.port, name
        self.opened: list[CursorReader] = []
        self._connection = pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user=USER,
            password=PASSWORD,
            autocommit=True,
            charset="utf8mb4",
            client_flag=CLIENT.MULTI_STATEMENTS,
        )
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        self.execute(f"USE {name}")
        self.execute("SET sql_mode = 'ANSI_QUOTES', time_zone = '+00:00'")

    def execute(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def system(self, **more: Any) -> MySQLSystem:
        settings: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self._port,
            "database": self._name,
            "username": USER,
            "password": PASSWORD,
            **more,
        }
        return MySQLSystem(name="db", **settings)

    def user(self, name: str, password: str) -> None:
        self.execute(f"CREATE USER IF NOT EXISTS '{name}'@'%'")
        self.execute(f"ALTER USER '{name}'@'%' IDENTIFIED BY '{password}'")
        self.execute(f"GRANT SELECT ON {self._name}.* TO '{name}'@'%'")

    def end_connections(self) -> None:
        me = self.execute("SELECT connection_id()")[0][0]
        for (number,) in self.execute("SELECT id FROM information_schema.processlist"):
            if number != me:
                try:
                    self.execute(f"KILL {number}")
                except pymysql.err.OperationalError as error:
                    # A connection may end by itself after it was listed.
                    if error.args[0] != ER.NO_SUCH_THREAD:
                        raise

    def close(self) -> None:
        for reader in self.opened:
            reader.close()
        self.execute(f"DROP DATABASE {self._name}")
        self._connection.close()


def field_of(name: str, dtype: DataType, *, key: bool = False) -> FieldSpec:
    return FieldSpec(name=name, dtype=dtype, key=key)


PLAIN = (field_of("id", INT), field_of("value", INT))


@dataclass
class Reading:
    """A table of a database that a worker reads into topics in memory."""

    database: System
    table: str
    fields: Sequence[FieldSpec] = PLAIN
    cursor: str = "at"
    disorder_s: int = 5
    resolve: Callable[[Any], str] = str
    more: dict[str, Any] = field(default_factory=dict)
    world: Blocks = field(default_factory=lambda: Blocks({}))
    rows_of_page: int = 10_000

    @property
    def plan(self) -> IngestPlan:
        connector = TableConnector(system=self.database.system(**self.more), table=self.table, cursor=self.cursor)
        is_keyed = any(each.key for each in self.fields)
        source = SourceSpec(
            connector=connector,
            cdc=Cdc.UPSERT if is_keyed else Cdc.APPEND,
            disorder_us=self.disorder_s * 1_000_000,
            every_us=1_000_000,
        )
        stamp = FieldSpec(name="seen", dtype=DATETIME, timestamp=True)
        dataset = DatasetSpec(name="Rows", version=1, history_us=0, fields=(*self.fields, stamp), index=None)
        return ingest_of(dataset, source)

    def reader(self) -> CursorReader:
        plan, world = self.plan, self.world
        context = context_of(plan, resolve=self.resolve, endpoints=getattr(self.database, "endpoints", {}))
        reader = self.database.reader(plan.source.connector, context)  # type: ignore[call-arg, arg-type]
        self.database.opened.append(reader)
        # The clock of the world, so that rounds needn't be waited for.
        reader._rounds._now = lambda: world.now
        reader._rounds._sleep = world.sleep
        poll, most = reader.poll, self.rows_of_page
        reader.poll = lambda *, rows, size, timeout_s: poll(rows=min(rows, most), size=size, timeout_s=timeout_s)  # type: ignore[method-assign]
        return reader

    def worker(self) -> Any:
        self.world.opens = lambda _, __: self.reader()  # type: ignore[assignment]
        return self.world.worker(plan=self.plan)

    def round(self, worker: Any) -> None:
        """Run a worker until it has completed the next round."""
        self.world.now += 60
        before = worker.position.get("next_at", 0)
        while worker.position.get("next_at", 0) == before or worker.position.get("most") is not None:
            self.world.now += 0.001
            assert worker.step()

    def rows(self) -> list[list[Any]]:
        items = self.world.topics.get(self.plan.topic.name, [])
        return [msgspec.msgpack.decode(value)[7] for key, item, _ in items for value in records_of(key, item)]
