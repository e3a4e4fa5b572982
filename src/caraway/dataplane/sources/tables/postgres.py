"""Tables of Postgres, read in the order of a cursor."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from caraway.dataplane.addresses.names import host_and_port, jdbc_params, name_parts
from caraway.dataplane.addresses.postgres_parameters import NO_PASSWORDS, POSTGRES_PARAMETERS, quote
from caraway.dataplane.addresses.reach import pinned
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import MAX_NULLS, Bounds, Page, Row, TableColumn, TableShape
from caraway.dataplane.sources.tables.statements import chunks, page_statement
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import PostgresSystem, RedshiftSystem

try:
    import psycopg
    from psycopg import sql
    from psycopg.adapt import Loader
    from psycopg.pq import Format
    from psycopg.types.string import TextLoader
except ImportError as error:
    raise UnavailableError(
        "Postgres is read by psycopg, which isn't installed: pip install caraway[postgres]"
    ) from error

# The seconds for which a connection, a statement and a lock are waited for. A page takes milliseconds if the cursor has
# an index; without one, each page sorts the table.
CONNECT_S, STATEMENT_S, LOCK_S = 10, 120, 10
# The connection counts as lost if data that was sent isn't acknowledged within this many milliseconds.
LOST_MS = 30_000

_KINDS = {
    "int2": CursorKind.NUMBER,
    "int4": CursorKind.NUMBER,
    "int8": CursorKind.NUMBER,
    "numeric": CursorKind.NUMBER,
    "timestamp": CursorKind.TIME,
    "timestamptz": CursorKind.TIME,
    "date": CursorKind.DATE,
    "text": CursorKind.TEXT,
    "varchar": CursorKind.TEXT,
    "bpchar": CursorKind.TEXT,
    "uuid": CursorKind.UUID,
}
# A page can begin behind a primary key of these types, because their values have an exact form, and an order in the
# database.
_KEYS = _KINDS.keys() | {"bool", "bytea"}
# The types whose values are handed over as the driver makes them.
_PLAIN = _KEYS - {"uuid"} | {"oid", "float4", "float8", "name"}

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, b.typname, b.typcategory, e.typname, e.typtype
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisprimary
ORDER BY k.place
"""


class PostgresReader(CursorReader):
    """Reads a table of Postgres (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: PostgresTable(connector, context), connector, context)


class PostgresTable:
    """A table of Postgres (`Database`)."""

    # The SQL expression of the database's current time.
    now = "clock_timestamp()"

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare.

        Raises:
            UnavailableError: A parameter of the address isn't known.
        """
        system = connector.system
        assert isinstance(system, PostgresSystem | RedshiftSystem)  # noqa: S101 (the planner refuses others)
        self._system = system
        self._context = context
        self._name = connector.table
        self._host, self._port = host_and_port(context.endpoints.get(system.name), system.host, system.port)
        self._at = f"{system.kind} {system.name} at {self._host}:{self._port}, database {system.database}"
        self.where = f"{self._at}, table {connector.table}"
        self._settings = self._of_jdbc()
        self._connection: psycopg.Connection[Any] | None = None
        self._table: str = ""
        self._columns: Mapping[str, TableColumn] = {}
        self._select: dict[str, str] = {}

    def shape(self) -> TableShape:
        """Return the table's columns; see `Database.shape`."""
        with self._errors(), self._connected().cursor() as cursor:
            oid = self._find(cursor)
            columns: dict[str, TableColumn] = {}
            self._select = {}
            exact: dict[str, bool] = {}
            for name, shown, nullable, base, category, element, element_kind in cursor.execute(_COLUMNS, [oid]):
                inner = element if category == "A" else None
                columns[name] = self.column(name, shown, base, element=inner, nullable=nullable)
                exact[name] = base in _KEYS
                if category == "A" and element_kind in {"e", "d"}:
                    # The driver can parse an array only if it knows the type of the elements, and it doesn't know enums
                    # and domains. So these arrays are read as arrays of texts.
                    self._select[name] = f"{quote(name)}::text[]"
            key = [name for (name,) in cursor.execute(_KEY, [oid])]
            (plan,) = cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {self._table}").fetchone() or (None,)  # noqa: S608 (the name is quoted)
        self._columns = columns
        return TableShape(
            columns=columns,
            primary_key=key if all(exact[name] for name in key) else (),
            folds_case=True,
            rows=_planned_rows(plan),
        )

    @staticmethod
    def column(name: str, shown: str, base: str, *, element: str | None, nullable: bool) -> TableColumn:
        """Return a column of a type.

        Args:
            name: The name.
            shown: The name of the type for people.
            base: The name of the type in the catalog.
            element: The name of the type of the elements, if it is an array.
            nullable: True if there may be nulls.
        """
        convert = _conversion(base, element)
        return TableColumn(name=name, type=shown, kind=_KINDS.get(base), nullable=nullable, convert=convert)

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor; see `Database.bounds`."""
        name = quote(cursor.name)
        nulls = f"SELECT 1 FROM {self._table} WHERE {name} IS NULL LIMIT {MAX_NULLS}"  # noqa: S608 (names are quoted)
        missing = f"(SELECT count(*) FROM ({nulls}) AS missing)" if cursor.nullable else "0"  # noqa: S608 (as above)
        statement = (
            f"SELECT (SELECT {name} FROM {self._table} WHERE {name} IS NOT NULL ORDER BY {name} DESC LIMIT 1), "  # noqa: S608 (as above)
            f"(extract(epoch FROM {self.now}) * 1000000)::bigint, "
            f"{missing}"
        )
        with self._errors(), self._connected().cursor() as found:
            row = found.execute(statement).fetchone()
        assert row is not None  # noqa: S101 (it has no FROM)
        return Bounds(greatest=row[0], now_us=row[1], nulls=row[2])

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        select = [self._select.get(name, quote(name)) for name in page.columns]
        statement, parameters = page_statement(page, self._table, quote, select=select)
        with self._errors(), self._connected().cursor() as cursor:
            # Values that Python can't represent, such as the time "infinity", are returned as texts. Another statement
            # for the rest of the page wouldn't do, since the table may have changed by then.
            for name in _LENIENT:
                cursor.adapters.register_loader(name, _Lenient)
            yield from chunks(cursor.stream(statement, parameters, size=_STREAMED), page.limit)

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _find(self, cursor: "psycopg.Cursor[Any]") -> int:
        """Return the number of the table, and note its quoted name."""
        parts = name_parts(self._name, self._at)
        for name in (".".join(map(quote, parts)), ".".join(quote(part.lower()) for part in parts)):
            found = cursor.execute("SELECT to_regclass(%s)::oid", [name]).fetchone()
            if found is not None and found[0] is not None:
                self._table = name
                return int(found[0])
        there = cursor.execute(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1 LIMIT 20"
        ).fetchall()
        tables = ", ".join(name for (name,) in there) or "none that this user may see"
        raise UnavailableError(f"{self._at}: there is no table {self._name}; tables: {tables}")

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> "psycopg.Connection[Any]":
        user, password = self._login()
        settings = dict(self._settings)
        schema = settings.pop("schema", None)
        keywords: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "application_name": "caraway",
            "client_encoding": "utf-8",
            "tcp_user_timeout": LOST_MS,
            **settings,
        }
        connection = psycopg.connect(
            **pinned(self._host, self._port),
            dbname=self._system.database,
            user=user,
            password=password,
            passfile=NO_PASSWORDS,
            autocommit=True,
            prepare_threshold=None,  # a pooler may give each statement another connection
            **keywords,
        )
        try:
            for text in self._session():
                connection.execute(text)
            if isinstance(schema, str):
                path = sql.SQL(", ").join(sql.Identifier(name.strip()) for name in schema.split(","))
                connection.execute(sql.SQL("SET search_path TO {}").format(path))
            # JSON isn't parsed before a row is known to be new.
            for name in ("json", "jsonb"):
                connection.adapters.register_loader(name, TextLoader)
        except BaseException:
            connection.close()
            raise
        return connection

    def _login(self) -> tuple[str, str]:
        """Return the user's name and password as they are now."""
        system, resolve = self._system, self._context.resolve
        assert system.username is not None  # noqa: S101 (checked by the definition)
        assert system.password is not None  # noqa: S101 (as above)
        return resolve(system.username), resolve(system.password)

    def _session(self) -> list[str]:
        """Return the statements that begin a session."""
        return [
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            f"SET statement_timeout TO {STATEMENT_S * 1000}",
            f"SET lock_timeout TO {LOCK_S * 1000}",
            "SET TimeZone TO 'UTC'",
            "SET DateStyle TO 'ISO'",
        ]

    def _of_jdbc(self) -> dict[str, object]:
        params = self._system.jdbc_params if isinstance(self._system, PostgresSystem) else None
        return jdbc_params(params, POSTGRES_PARAMETERS, self._at, self._context.resolve)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self.close()
            text = " ".join(str(error).split()) or type(error).__name__
            raise UnavailableError(f"{self.where}: {text}{_remedy(error)}") from None


# Types with values that Python can't represent, such as infinity, the hour 24, or years before Christ.
_LENIENT = ("date", "interval", "time", "timestamp", "timestamptz", "timetz")
# The rows that libpq hands over at a time while the rest is on its way.
_STREAMED = 500


def _conversion(base: str, element: str | None) -> Callable[[Any], object] | None:
    """Return what becomes of the driver's values of a type."""
    if base in {"json", "jsonb", "super", "vector"}:
        return _parsed
    if element is not None:
        convert = _conversion(element, None)
        return None if convert is None else lambda values: _each(values, convert)
    return None if base in _PLAIN else _plain


def _each(values: object, convert: Callable[[Any], object]) -> object:
    if isinstance(values, list):
        return [_each(value, convert) for value in values]
    return None if values is None else convert(values)


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError("isn't JSON that can be read") from None


def _plain(value: Any) -> object:
    """Return a value of another type, such as an enum, a UUID or an address, as a text."""
    return value if isinstance(value, str | list | bytes) else str(value)


def _planned_rows(plan: Any) -> int | None:
    try:
        return int(plan[0]["Plan"]["Plan Rows"])
    except (TypeError, KeyError, IndexError, ValueError):
        try:
            return int(orjson.loads(plan)[0]["Plan"]["Plan Rows"])
        except (TypeError, KeyError, IndexError, ValueError):
            return None


class _Lenient(Loader):
    """Loads a value as the driver does, or as a text if Python has no such value."""

    def __init__(self, oid: int, context: Any = None) -> None:
        super().__init__(oid, context)
        exact = psycopg.adapters.get_loader(oid, Format.TEXT)
        assert exact is not None  # noqa: S101 (the driver has one for each of the types)
        self._exact = exact(oid, context)

    def load(self, data: Any) -> Any:
        try:
            return self._exact.load(data)
        except psycopg.DataError:
            return bytes(data).decode()


def _remedy(error: "psycopg.Error") -> str:
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return "; grant SELECT on the table to this user"
        case psycopg.errors.InvalidPassword() | psycopg.errors.InvalidAuthorizationSpecification():
            return "; correct the user's name or password"
        case psycopg.errors.QueryCanceled():
            return f"; the page took more than {STATEMENT_S} s: give the cursor an index"
        case psycopg.errors.LockNotAvailable():
            return f"; the table was locked for more than {LOCK_S} s"
        case psycopg.errors.UndefinedColumn() | psycopg.errors.UndefinedTable():
            return "; the table was changed, so its columns are read again"
        case _:
            return ""
