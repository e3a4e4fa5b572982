"""Tables of MySQL and MariaDB, read in the order of a cursor."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from typing import Any

import orjson

from caraway.dataplane.addresses.names import host_and_port, jdbc_params, name_parts
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import MAX_NULLS, Bounds, Page, Row, TableColumn, TableShape
from caraway.dataplane.sources.tables.mysql_connection import (
    MYSQL_PARAMETERS,
    STATEMENT_S,
    DatabaseConnection,
    connection_keywords,
    is_mariadb,
    quote,
)
from caraway.dataplane.sources.tables.statements import CHUNK_ROWS, tie_statements
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import MySQLSystem

try:
    import pymysql
    from pymysql.connections import Connection
    from pymysql.constants import ER
    from pymysql.cursors import SSCursor
except ImportError as error:
    raise UnavailableError("MySQL is read by PyMySQL, which is missing: pip install caraway[mysql]") from error

# The seconds for which a lock is waited for, the same as for Postgres.
LOCK_S = 10

_KINDS = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "numeric"), CursorKind.NUMBER
    ),
    **dict.fromkeys(("datetime", "timestamp"), CursorKind.TIME),
    "date": CursorKind.DATE,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), CursorKind.TEXT),
}
# A page can begin behind a primary key of these types, because their values have an exact form, and an order in the
# database. Dates and times are left out because of values with zeros in them, such as 0000-00-00.
_KEYS = _KINDS.keys() - {"datetime", "timestamp", "date"} | {"binary", "varbinary"}
_TIMES = frozenset({CursorKind.TIME, CursorKind.DATE})
# Times before this one are MySQL's zero dates, such as 0000-00-00. A cursor with such a value counts as missing.
_FIRST = "0001-01-01"

_COLUMNS = """
SELECT column_name, column_type, data_type, is_nullable
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_ROWS = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
# MariaDB stores JSON as text with a constraint, by which such columns are found.
_JSON = """
SELECT check_clause FROM information_schema.check_constraints
WHERE constraint_schema = %s AND table_name = %s AND check_clause LIKE 'json_valid(%%'
"""


class MySQLReader(CursorReader):
    """Reads a table of MySQL or MariaDB (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: MySQLTable(connector, context), connector, context)


class MySQLTable:
    """A table of MySQL or MariaDB (`Database`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare.

        Raises:
            UnavailableError: A parameter of the address isn't known.
        """
        system = connector.system
        assert isinstance(system, MySQLSystem)  # noqa: S101 (the planner refuses others)
        self._system = system
        self._context = context
        self._host, self._port = host_and_port(context.endpoints.get(system.name), system.host, system.port)
        self._at = f"{system.kind} {system.name} at {self._host}:{self._port}, database {system.database}"
        self.where = f"{self._at}, table {connector.table}"
        parts = name_parts(connector.table, self._at)
        self._schema, self._name = parts if len(parts) == 2 else (system.database, parts[-1])
        self._table = f"{quote(self._schema)}.{quote(self._name)}"
        self._settings = jdbc_params(system.jdbc_params, MYSQL_PARAMETERS, self._at, context.resolve)
        self._connection: Connection[Any] | None = None
        self._kinds: dict[str, CursorKind | None] = {}

    def shape(self) -> TableShape:
        """Return the table's columns; see `Database.shape`."""
        at = (self._schema, self._name)
        with self._errors():
            found = self._all(_COLUMNS, at)
            if not found:
                raise self._missing()
            keys = [name for (name,) in self._all(_KEY, at)]
            rows = self._all(_ROWS, at)
            texts = {text for (text,) in self._all(_JSON, at)} if is_mariadb(self._connected()) else set()
        columns: dict[str, TableColumn] = {}
        exact: dict[str, bool] = {}
        for name, shown, base, nullable in found:
            is_json = base == "json" or f"json_valid({quote(name)})" in texts
            columns[name] = TableColumn(
                name=name,
                type=shown,
                kind=_KINDS.get(base),
                nullable=nullable == "YES",
                convert=_parsed if is_json else _CONVERSIONS.get(base),
            )
            exact[name] = base in _KEYS
        self._kinds = {name: column.kind for name, column in columns.items()}
        return TableShape(
            columns=columns,
            primary_key=keys if all(exact[name] for name in keys) else (),
            folds_case=True,
            rows=rows[0][0] if rows else None,
        )

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor; see `Database.bounds`."""
        name = quote(cursor.name)
        is_none = f"{name} IS NULL"
        if cursor.kind in _TIMES:
            is_none = f"({is_none} OR {name} < '{_FIRST}')"
        missing = f"(SELECT count(*) FROM (SELECT 1 FROM {self._table} WHERE {is_none} LIMIT {MAX_NULLS}) AS missing)"  # noqa: S608 (names are quoted)
        statement = (
            f"SELECT (SELECT {name} FROM {self._table} ORDER BY {name} DESC LIMIT 1), "  # noqa: S608 (as above)
            f"CAST(unix_timestamp(now(6)) * 1000000 AS SIGNED), {missing}"
        )
        with self._errors():
            greatest, now_us, nulls = self._all(statement)[0]
        return Bounds(greatest=None if _is_zero(greatest) else greatest, now_us=int(now_us), nulls=nulls)

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        if page.least is None and page.after is None and self._kinds.get(page.columns[0]) in _TIMES:
            page = Page(
                columns=page.columns, keys=page.keys, least=_FIRST, most=page.most, after=None, limit=page.limit
            )
        left = page.limit
        for statement, parameters in tie_statements(page, self._table, quote):
            if left == 0:
                return
            for chunk in self._stream(statement, parameters, left):
                yield chunk
                left = None if left is None else left - len(chunk)

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # The socket is closed without a message to the server. The server would read the message only after it has
            # sent the rest of a result.
            with suppress(pymysql.Error, OSError):
                connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 (the driver has no other name for it)

    def _stream(self, statement: str, parameters: Sequence[Any], limit: int | None) -> Iterator[Sequence[Row]]:
        if limit is not None:
            statement = f"{statement.rpartition(' LIMIT ')[0]} LIMIT {limit:d}"
        with self._errors():
            cursor = self._connected().cursor(SSCursor)
            cursor.execute(statement, list(parameters))
            try:
                while chunk := cursor.fetchmany(CHUNK_ROWS):
                    yield chunk
            finally:
                if limit is None:
                    # Closing the cursor would read the rest of the rows, which may be many. The driver has no public
                    # way to leave them.
                    cursor._result.unbuffered_active = False  # type: ignore[attr-defined]  # noqa: SLF001 (see above)
                    self.close()
                else:
                    cursor.close()

    def _all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._connected().cursor() as cursor:
            cursor.execute(statement, tuple(parameters) or None)
            return list(cursor.fetchall())

    def _missing(self) -> UnavailableError:
        statement = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1 LIMIT 20"
        tables = ", ".join(name for (name,) in self._all(statement, (self._schema,)))
        return UnavailableError(
            f"{self._at}: there is no table {self._schema}.{self._name} that this user may see; "
            f"tables: {tables or 'none'}"
        )

    def _connected(self) -> "Connection[Any]":
        if self._connection is None or not self._connection.open:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> "Connection[Any]":
        system, resolve = self._system, self._context.resolve
        connection = DatabaseConnection(
            **connection_keywords(self._settings),
            host=self._host,
            port=self._port,
            database=system.database,
            user=resolve(system.username),
            password=resolve(system.password),
        )
        try:
            limit = (
                f"max_statement_time = {STATEMENT_S}"
                if is_mariadb(connection)
                else f"max_execution_time = {STATEMENT_S}000"
            )
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION time_zone = '+00:00', lock_wait_timeout = {LOCK_S}, {limit}")
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute("SET SESSION TRANSACTION READ ONLY")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.Error, OSError) as error:
            self.close()
            number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            text = " ".join(str(part) for part in error.args[1:]) or str(error) or type(error).__name__
            raise UnavailableError(f"{self.where}: {text}{_REMEDIES.get(number, '')}") from None


_REMEDIES = {
    ER.ACCESS_DENIED_ERROR: "; correct the user's name or password",
    ER.DBACCESS_DENIED_ERROR: "; grant SELECT on the database to this user",
    ER.TABLEACCESS_DENIED_ERROR: "; grant SELECT on the table to this user",
    ER.BAD_FIELD_ERROR: "; the table was changed, so its columns are read again",
    ER.NO_SUCH_TABLE: "; the table was changed, so its columns are read again",
    ER.LOCK_WAIT_TIMEOUT: f"; the table was locked for more than {LOCK_S} s",
    1969: f"; the page took more than {STATEMENT_S} s: give the cursor an index",
    3024: f"; the page took more than {STATEMENT_S} s: give the cursor an index",
}


def _is_zero(value: object) -> bool:
    """Return whether a time is a zero date, which the driver returns as a text."""
    return isinstance(value, str) and value.startswith(("0000-", "0000"))


def _parsed(text: Any) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError("isn't JSON that can be read") from None


def _time(value: Any) -> object:
    if isinstance(value, datetime | date):
        return value
    raise ValueError(f"{str(value)!r} is no date; write null for one that isn't known")


def _bits(value: Any) -> object:
    return int.from_bytes(value) if isinstance(value, bytes) else value


_CONVERSIONS: Mapping[str, Callable[[Any], object]] = {
    "datetime": _time,
    "timestamp": _time,
    "date": _time,
    "time": str,
    "bit": _bits,
}
