"""Tables of Snowflake, read in the order of a cursor.

Snowflake doesn't enforce primary keys, so pages don't follow them. Its times have up to nine digits of a second, and
Python's have six: a value of the cursor stands for all times of its microsecond.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import orjson
import polars as pl

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import MAX_NULLS, Bounds, Page, Row, TableColumn, TableShape
from caraway.dataplane.sources.tables.scan import CHUNK_ROWS, Result, Scan, limits
from caraway.dataplane.warehouses.snowflake import NOT_FOUND, connect, errors, quote
from caraway.dtypes.instants import EPOCH, US
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import SnowflakeSystem

try:
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor
    from snowflake.connector.errors import Error, ProgrammingError
except ImportError as error:
    raise UnavailableError(
        "Snowflake is reached by snowflake-connector-python, which isn't installed: pip install caraway[snowflake]"
    ) from error

_KINDS = {
    "NUMBER": CursorKind.NUMBER,
    "TIMESTAMP_NTZ": CursorKind.TIME,
    "TIMESTAMP_LTZ": CursorKind.TIME,
    "TIMESTAMP_TZ": CursorKind.TIME,
    "DATE": CursorKind.DATE,
    "VARCHAR": CursorKind.TEXT,
}
# The types whose values come as texts in JSON.
_JSON = {"VARIANT", "OBJECT", "ARRAY", "MAP", "GEOGRAPHY", "GEOMETRY"}
# The types whose values are handed over as the connector makes them.
_PLAIN = _KINDS.keys() | {"FLOAT", "BOOLEAN", "BINARY", "VECTOR"}


class SnowflakeReader(CursorReader):
    """Reads a table of Snowflake (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: SnowflakeTable(connector, context), connector, context)


class SnowflakeTable:
    """A table of Snowflake (`Database`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare; it connects at the first use."""
        system = connector.system
        assert isinstance(system, SnowflakeSystem)  # noqa: S101 (the planner refuses others)
        self._system = system
        self._context = context
        self._name = connector.table
        self._at = f"Snowflake {system.name}, account {system.account}, schema {system.database}.{system.schema}"
        self.where = f"{self._at}, table {connector.table}"
        self._connection: SnowflakeConnection | None = None
        self._table = ""
        self._columns: Mapping[str, TableColumn] = {}
        self._scan = Scan(self._run)

    def shape(self) -> TableShape:
        """Return the table's columns; see `Database.shape`."""
        with errors(self.where, self.close), self._connected().cursor() as cursor:
            columns = {name: _column(name, kind, nullable=null) for name, kind, null in self._described(cursor)}
            (count,) = cursor.execute(f"SELECT COUNT(*) FROM {self._table}").fetchone()  # type: ignore[union-attr, misc]  # noqa: S608 (the name is quoted; Snowflake knows the number)
        self._columns = columns
        return TableShape(columns=columns, folds_case=True, rows=int(count))

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor; see `Database.bounds`."""
        name = quote(cursor.name)
        statement = f"SELECT COUNT(*), COUNT({name}), MAX({name}), CURRENT_TIMESTAMP() FROM {self._table}"  # noqa: S608 (names are quoted)
        with errors(self.where, self.close), self._connected().cursor() as found:
            result = found.execute(statement)
            assert result is not None  # noqa: S101 (None is for statements that are prepared only)
            ((rows, known, greatest, now),) = self._rows_of(result)
        at = now.astimezone(UTC)
        return Bounds(
            greatest=greatest if known else None, now_us=(at - EPOCH) // US, nulls=min(rows - known, MAX_NULLS)
        )

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        with errors(self.where, self.close):
            yield from self._scan.rows(page)

    def close(self) -> None:
        """End the session."""
        self._scan.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close(retry=False)
            except (Error, OSError):
                return

    def _connected(self) -> SnowflakeConnection:
        if self._connection is None or self._connection.is_closed():
            endpoint = self._context.endpoints.get(self._system.name)
            self._connection = connect(self._system, self._context.resolve, endpoint)
        return self._connection

    def _described(self, cursor: SnowflakeCursor) -> list[tuple[str, str, bool]]:
        """Return the name and type of each column and whether it may have nulls, and note the table's quoted name."""
        parts = name_parts(self._name, self._at)
        # Snowflake stores names without quotes in upper case. So the name is tried as it is, and in upper case.
        for name in (".".join(map(quote, parts)), ".".join(quote(part.upper()) for part in parts)):
            try:
                cursor.execute(f"DESCRIBE TABLE {name}")
            except ProgrammingError as error:
                if error.errno != NOT_FOUND:
                    raise
                continue
            if rows := cursor.fetchall():
                self._table = name
                return [(row[0], row[1], row[3] == "Y") for row in rows]
        there = cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = CURRENT_SCHEMA() "
            "ORDER BY table_name LIMIT 20"
        )
        tables = ", ".join(str(row[0]) for row in there.fetchall()) if there else ""
        raise UnavailableError(
            f"{self._at}: there is no table {self._name} that the role {self._system.role} may see; tables: "
            f"{tables or 'none'}"
        )

    def _run(self, page: Page) -> Result:
        """Run the statement of a page."""
        cursor = self._connected().cursor()
        column = self._columns[page.columns[0]]
        names = [quote(name) for name in page.columns]
        conditions: list[str] = []
        parameters: list[Any] = []
        for operator, value in limits(page, column.kind):
            text, bound = _bound(value, column.type)
            conditions.append(f"{names[0]} {operator} {text}")
            parameters += bound
        statement = f"SELECT {', '.join(names)} FROM {self._table} WHERE {' AND '.join(conditions)}"  # noqa: S608 (names are quoted)
        if page.limit is not None:
            statement += f" ORDER BY {names[0]} LIMIT {page.limit:d}"
        result = cursor.execute(statement, parameters)
        assert result is not None  # noqa: S101 (None is for statements that are prepared only)
        return Result(cursor.rowcount or 0, self._chunks(result))

    @staticmethod
    def _chunks(cursor: SnowflakeCursor) -> Iterator[Sequence[Row]]:
        for table in cursor.fetch_arrow_batches(force_microsecond_precision=True):
            frame = pl.from_arrow(table)
            assert isinstance(frame, pl.DataFrame)  # noqa: S101 (a table isn't a column)
            for part in frame.iter_slices(CHUNK_ROWS):
                yield part.rows()

    def _rows_of(self, cursor: SnowflakeCursor) -> list[Row]:
        return [row for chunk in self._chunks(cursor) for row in chunk]


def _bound(value: Any, kind: str) -> tuple[str, list[Any]]:
    """Return the text of a value in a statement, and its parameters."""
    match value:
        case int() | Decimal():
            # The connector can't bind exact numbers with fractions, so numbers are written into the statement.
            return f"{value:f}" if isinstance(value, Decimal) else str(value), []
        case datetime():
            return "?", [(_base(kind), value)]
        case _:
            return "?", [value]


def _base(kind: str) -> str:
    return kind.partition("(")[0].strip().upper()


def _column(name: str, kind: str, *, nullable: bool) -> TableColumn:
    base = _base(kind)
    convert: Callable[[Any], object] | None = _text
    if base in _JSON:
        convert = _parsed
    elif base in _PLAIN:
        convert = None
    return TableColumn(name=name, type=kind, kind=_KINDS.get(base), nullable=nullable, convert=convert)


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        raise ValueError("isn't JSON that can be read") from None


def _text(value: object) -> object:
    return value.isoformat() if isinstance(value, time) else str(value)
