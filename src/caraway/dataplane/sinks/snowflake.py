"""The writer of tables in Snowflake: each batch is one transaction, which also has the position of the sink.

A table beside the sink's own one has one row: the sink and its position. A transaction first changes this row, which
locks it, and compares the position with the one that the writer knows. So each batch is in the table exactly once,
whoever writes and whenever a writer dies. Snowflake commits with each statement that creates or alters something, so
none of these is in the transaction; they can all be repeated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

import orjson

from caraway.dataplane.sinks.changes import last_of_each_key
from caraway.dataplane.sinks.rows import TableRow, hash_column, table_rows
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, SignIn, Writing
from caraway.dataplane.warehouses.snowflake import connect, errors, quote, resolved_name
from caraway.dtypes.instants import EPOCH, to_datetime
from caraway.dtypes.types import (
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    FloatType,
    IntType,
    StringType,
    base_type,
)
from caraway.dtypes.values import to_json
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import SnowflakeSystem

try:
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.errors import Error
except ImportError as error:
    raise UnavailableError(
        "Snowflake is written by snowflake-connector-python, which isn't installed: pip install caraway[snowflake]"
    ) from error

# The column of the staged rows that says whether a row is to be deleted. The sink's table doesn't have it.
DELETED = "__CARAWAY_DELETED__"
# The suffixes of the sink's table name, for the table with the position and for the temporary table with staged rows.
POSITION, STAGED = "__CARAWAY_POSITION", "__CARAWAY_STAGED"
DESCRIPTION = "Written by Caraway from the dataset {dataset}; changes by others are lost."


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the sink's table.

    Attributes:
        name: Its quoted name.
        type: Its type.
        staged: The type of the column of staged rows.
        expression: Makes the value of a staged one, whose quoted name replaces the braces.
        convert: Makes the value that is staged of one in stored form.
    """

    name: str
    type: str
    staged: str
    expression: str
    convert: Callable[[Any], Any]


class SnowflakeWriter:
    """Writes the rows of a dataset to a table: those of a keyed one by key, those of others by a hash column."""

    guarantee = EXACTLY_ONCE
    # The position is stored in Snowflake beside the rows, and is lost only together with them. So the worker uses this
    # position, and not the one in Postgres.
    remembers = True

    def __init__(self, writing: Writing) -> None:
        """Open a session, and create the table if there is none.

        Raises `UnavailableError` if Snowflake doesn't answer or refuses, or another program has made the table.
        """
        self._writing, plan = writing, writing.plan
        schema = plan.topic.schema
        self._keyed = bool(schema.keys)
        self._columns = _columns_of(plan, hash_column(writing.product))
        renames = dict(plan.sink.renames)
        keys = [quote(renames.get(key.name, key.name).upper()) for key in schema.keys]
        self._keys = keys or [self._columns[-1].name]
        self._where = _where(plan)
        *self._schema, name = resolved_name(plan.target)
        self._name = name
        self._table, self._position = self._qualified(name), self._qualified(name + POSITION)
        self._staged = quote(name + STAGED)
        self._connection: SnowflakeConnection | None = None
        self._owner, self._known = "", dict[str, int]()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the last transaction has written."""
        with self._errors():
            self._owner, self._known = self._read_position()
        return {int(p): offset for p, offset in self._known.items()} if self._owner == self._writing.name else {}

    def write(self, batch: Batch) -> None:
        """Write changes in one transaction; see `SinkWriter.write`."""
        rows = [self._staged_row(each) for each in table_rows(self._writing.plan, last_of_each_key(batch.changes))]
        reached = {str(partition): offset for partition, offset in sorted(batch.reached.items())}
        with self._errors():
            self._stage(rows)
            self._do("BEGIN TRANSACTION")
            try:
                self._write(rows, reached)
                self._do("COMMIT")
            except BaseException:
                with suppress(Error, OSError):
                    self._do("ROLLBACK")
                raise
        self._owner, self._known = self._writing.name, reached
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """End the session, and with it a transaction that wasn't committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Error, OSError):
                connection.close(retry=False)

    def _open(self) -> None:
        writing = self._writing
        with self._errors():
            self._connection = _connected(writing.plan, writing.sign_in)
            dataset = writing.plan.dataset.name
            there = self._there()
            if self._name in there and self._name + POSITION not in there:
                raise UnavailableError(
                    f"{self._where} is a table already, which no sink of {dataset} has made; rename one of them, or "
                    "drop the table"
                )
            # A sink creates the table with the position before the table with its rows. So a table without a position
            # table beside it wasn't made by a sink.
            self._do(
                f'CREATE TABLE IF NOT EXISTS {self._position} ("SINK" VARCHAR, "OFFSETS" VARCHAR, "TURN" NUMBER(38, 0))'
            )
            columns = ", ".join(f"{column.name} {column.type}" for column in self._columns)
            comment = DESCRIPTION.format(dataset=dataset)
            self._do(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) COMMENT = '{comment}'")
            self._do(
                f"INSERT INTO {self._position} SELECT '', '{{}}', 0 "  # noqa: S608 (names are quoted)
                f"WHERE NOT EXISTS (SELECT 1 FROM {self._position})"
            )
            if self._name not in there:
                # Somebody has dropped the table, so the sink writes it from the beginning.
                self._do(f"UPDATE {self._position} SET \"SINK\" = '', \"OFFSETS\" = '{{}}'")  # noqa: S608 (names are quoted)
            self._owner, self._known = self._read_position()
            self._align()
            staged = ", ".join(f"{column.name} {column.staged}" for column in self._columns)
            self._do(f"CREATE OR REPLACE TEMPORARY TABLE {self._staged} ({staged}, {quote(DELETED)} BOOLEAN)")

    def _align(self) -> None:
        """Change the columns of the table of an earlier sink of this name to those of this sink."""
        there = {row[0] for row in self._do(f"DESCRIBE TABLE {self._table}")}
        wanted = {column.name[1:-1].replace('""', '"'): column for column in self._columns}
        if there == wanted.keys():
            return
        if self._owner == self._writing.name:
            changed = ", ".join(sorted(there ^ wanted.keys()))
            raise UnavailableError(f"{self._where}: its columns were changed by others: {changed}; change them back")
        for name in wanted.keys() - there:
            self._do(f"ALTER TABLE {self._table} ADD COLUMN IF NOT EXISTS {wanted[name].name} {wanted[name].type}")
        for name in there - wanted.keys():
            self._do(f"ALTER TABLE {self._table} DROP COLUMN IF EXISTS {quote(name)}")

    def _there(self) -> set[str]:
        """Return which of the sink's two tables are there."""
        tables = ".".join([*map(quote, self._schema[:-1]), "information_schema.tables"])
        schema = "?" if self._schema else "CURRENT_SCHEMA()"
        found = self._do(
            f"SELECT table_name FROM {tables} WHERE table_schema = {schema} AND table_name IN (?, ?)",  # noqa: S608 (names are quoted)
            [*self._schema[-1:], self._name, self._name + POSITION],
        )
        return {name for (name,) in found}

    def _read_position(self) -> tuple[str, dict[str, int]]:
        """Return the sink that has written the table, and its position."""
        # The position table has two rows if two servers have each inserted one at the same time. Each later statement
        # updates all rows, so the rows are equal, and any of them has the position.
        found = self._do(f'SELECT "SINK", "OFFSETS" FROM {self._position} ORDER BY "TURN" DESC LIMIT 1')  # noqa: S608 (names are quoted)
        owner, offsets = found[0] if found else ("", "{}")
        return owner, orjson.loads(offsets)

    def _stage(self, rows: Sequence[Sequence[Any]]) -> None:
        """Put rows into the temporary table; the connector uploads many of them as a file."""
        self._do(f"TRUNCATE TABLE {self._staged}")
        if not rows:
            return
        marks = ", ".join("?" * len(rows[0]))
        with self._session().cursor() as cursor:
            cursor.executemany(f"INSERT INTO {self._staged} VALUES ({marks})", rows)  # noqa: S608 (names are quoted)
        ((count,),) = self._do(f"SELECT COUNT(*) FROM {self._staged}")  # noqa: S608 (as above)
        if count != len(rows):
            raise UnavailableError(f"{self._where}: {count:,} rows were staged instead of {len(rows):,}")

    def _write(self, rows: Sequence[Sequence[Any]], reached: Mapping[str, int]) -> None:
        # The update locks the row until the transaction ends, so the position that is read below is the last one.
        self._do(f'UPDATE {self._position} SET "TURN" = "TURN" + 1')  # noqa: S608 (names are quoted)
        owner, known = self._read_position()
        if (owner, known) != (self._owner, self._known):
            raise UnavailableError(f"{self._where}: another server has written it")
        if owner != self._writing.name:
            # The rows of an earlier sink of this name are removed, since they may not be in the dataset any more.
            self._do(f"DELETE FROM {self._table}")  # noqa: S608 (as above)
        if rows and not self._keyed and not any(row[-1] for row in rows):
            names = ", ".join(column.name for column in self._columns)
            self._do(f"INSERT INTO {self._table} ({names}) {self._selected(deleted=False)}")
        elif rows:
            self._do(self._merge())
        offsets = orjson.dumps(reached).decode()
        self._do(f'UPDATE {self._position} SET "SINK" = ?, "OFFSETS" = ?', [self._writing.name, offsets])  # noqa: S608 (as above)

    def _selected(self, *, deleted: bool) -> str:
        expressions = [f"{column.expression.format(column.name)} AS {column.name}" for column in self._columns]
        if deleted:
            expressions.append(quote(DELETED))
        return f"SELECT {', '.join(expressions)} FROM {self._staged}"  # noqa: S608 (names are quoted)

    def _merge(self) -> str:
        same = " AND ".join(f"target.{key} = source.{key}" for key in self._keys)
        names = [column.name for column in self._columns]
        gone = f"source.{quote(DELETED)}"
        changed = ", ".join(f"{name} = source.{name}" for name in names)
        return (
            f"MERGE INTO {self._table} AS target USING ({self._selected(deleted=True)}) AS source ON {same} "  # noqa: S608 (names are quoted)
            f"WHEN MATCHED AND {gone} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {changed} "
            f"WHEN NOT MATCHED AND NOT {gone} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f'source.{name}' for name in names)})"
        )

    def _staged_row(self, made: TableRow) -> tuple[Any, ...]:
        values = (*made.row.values, made.row.time_us, *([] if self._keyed else [made.hash]))
        converted = (
            None if value is None else column.convert(value)
            for column, value in zip(self._columns, values, strict=True)
        )
        return (*converted, made.deleted)

    def _do(self, statement: str, parameters: Sequence[Any] | None = None) -> list[Any]:
        with self._session().cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def _session(self) -> SnowflakeConnection:
        if self._connection is None:
            raise UnavailableError(f"{self._where}: the session has ended")
        return self._connection

    def _qualified(self, name: str) -> str:
        return ".".join(map(quote, [*self._schema, name]))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with errors(self._where, self.close):
            yield


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that Snowflake lets the user in, and that the table can have the columns.

    Raises:
        CommitError: Snowflake doesn't answer or refuses, or two columns would have one name.
    """
    try:
        _columns_of(plan, hash_column("caraway"))
        resolved_name(plan.target)
        with errors(_where(plan), lambda: None):
            connection = _connected(plan, sign_in)
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT CURRENT_DATABASE(), CURRENT_SCHEMA()")
                    found = cursor.fetchone()
            finally:
                connection.close(retry=False)
    except UnavailableError as error:
        raise CommitError(str(error)) from None
    if not isinstance(found, tuple) or None in found:
        raise CommitError(
            f"{_where(plan)}: the database or the schema isn't there, or the role may not use it; create it, or grant "
            "the role USAGE on both and CREATE TABLE on the schema"
        )


def _where(plan: SinkPlan) -> str:
    system = _system(plan)
    return f"Snowflake {system.name}, account {system.account}, table {system.database}.{system.schema}.{plan.target}"


def _system(plan: SinkPlan) -> SnowflakeSystem:
    connector = plan.sink.connector
    assert isinstance(connector, TableConnector)  # noqa: S101 (the planner chooses the writer)
    assert isinstance(connector.system, SnowflakeSystem)  # noqa: S101 (as above)
    return connector.system


def _connected(plan: SinkPlan, sign_in: SignIn) -> SnowflakeConnection:
    system = _system(plan)
    return connect(system, sign_in.resolve, sign_in.endpoints.get(system.name))


def _columns_of(plan: SinkPlan, hash_name: str) -> list[_Column]:
    """Return the columns of the table: those of the dataset, the timestamp, and for rows without keys a hash.

    Raises:
        UnavailableError: Two columns have one name, since Snowflake's names without quotes are in upper case.
    """
    schema, renames = plan.topic.schema, dict(plan.sink.renames)
    time = next(field.dtype for field in plan.dataset.fields if field.timestamp)
    fields = [*((column.name, column.dtype) for column in schema.columns), (schema.timestamp, time)]
    columns = [_column(renames.get(name, name), dtype) for name, dtype in fields]
    if not schema.keys:
        columns.append(_column(hash_name, StringType()))
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UnavailableError(
            f"{_where(plan)}: two columns would have the name {', '.join(twice)}; rename one of them by renames="
        )
    return columns


def _column(name: str, dtype: DataType) -> _Column:
    def of(kind: str, convert: Callable[[Any], Any] = lambda value: value) -> _Column:
        return _Column(quote(name.upper()), kind, kind, "{}", convert)

    match base_type(dtype):
        case IntType():
            return of("NUMBER(38, 0)")
        case FloatType():
            return of("FLOAT")
        case BoolType():
            return of("BOOLEAN")
        case StringType():
            return of("VARCHAR")
        case BytesType():
            return of("BINARY")
        case DatetimeType():
            return of("TIMESTAMP_NTZ(6)", lambda us: to_datetime(us).astimezone(UTC).replace(tzinfo=None))
        case DateType():
            return of("DATE", lambda days: date.fromordinal(EPOCH.toordinal() + days))
        case DecimalType(scale=scale):
            # The connector can't send exact numbers with fractions as parameters. So decimals are sent as texts, which
            # Snowflake casts.
            kind = f"NUMBER(38, {scale})"
            return _Column(quote(name.upper()), kind, "VARCHAR", f"CAST({{}} AS {kind})", str)
        case _:
            as_json = to_json(dtype)
            return _Column(
                quote(name.upper()),
                "VARIANT",
                "VARCHAR",
                "PARSE_JSON({})",
                lambda value: orjson.dumps(as_json(value)).decode(),
            )
