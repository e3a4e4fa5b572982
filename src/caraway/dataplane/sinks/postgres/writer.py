"""The writer of tables in Postgres: each batch is one transaction, which also has the position of the sink.

The table `caraway_positions` beside the table has its sink and the position. A transaction locks that row and compares
the position with the one that the writer knows. So each batch is in the table exactly once, whoever writes and
whenever a writer, the server or the connection dies; and if the database is restored from a backup, the sink goes on
from the position that the backup has.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import orjson

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.addresses.postgres_parameters import connection_parameters, place_of
from caraway.dataplane.sinks.changes import last_of_each_key
from caraway.dataplane.sinks.envelopes import Product
from caraway.dataplane.sinks.postgres.table import NAME_BYTES, POSITIONS, SinkTable
from caraway.dataplane.sinks.rows import TableRow, table_rows
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, Refusal, SignIn, Writing
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import PostgresSystem

try:
    import psycopg
    from psycopg import errors
except ImportError as error:
    raise UnavailableError(
        "Postgres is written by psycopg, which isn't installed: pip install caraway[postgres]"
    ) from error

# The most seconds that a statement may take, and that it may wait for a lock.
STATEMENT_S, LOCK_S = 120, 10
# If Postgres doesn't acknowledge sent data within this many milliseconds, the connection counts as lost.
LOST_MS = 30_000
SETTINGS = {
    "statement_timeout": f"{STATEMENT_S}s",
    "lock_timeout": f"{LOCK_S}s",
    "TimeZone": "UTC",
    "client_min_messages": "warning",
}
# The errors about values of rows, which Postgres will never accept.
REFUSED = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded, OverflowError)

_OID = "SELECT to_regclass(%s)::oid, obj_description(to_regclass(%s)::oid, 'pg_class')"
_SHAPE = """
SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_RIGHTS = """
SELECT has_schema_privilege(%(schema)s, 'USAGE'), has_schema_privilege(%(schema)s, 'CREATE'),
has_database_privilege(current_database(), 'TEMPORARY')
"""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresWriter:
    """Writes the rows of a dataset to a table: those of a keyed one by key, those of others by a hash column."""

    guarantee = EXACTLY_ONCE
    remembers = True

    def __init__(self, writing: Writing) -> None:
        """Connect, and create the table if there is none.

        Raises `UnavailableError` if Postgres doesn't answer or refuses, or the table is somebody else's.
        """
        self._writing = writing
        self._where = _where(writing.plan, writing.sign_in)
        self._connection = _connected(writing.plan, writing.sign_in)
        self._known: dict[int, int] = {}
        try:
            with _translated(self._where):
                self._table = _table_of(self._connection, writing.plan, writing.product, self._where)
                self._open()
                self._do(self._table.stage())
        except BaseException:
            self._connection.close()
            raise

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the last transaction has; none if the table has rows of another sink, or none."""
        with _translated(self._where), self._connection.transaction():
            self._known = self._locked()
        return dict(self._known)

    def write(self, batch: Batch) -> None:
        """Write changes in one transaction; see `SinkWriter.write`."""
        if not self._writing.keep():
            raise UnavailableError("another server writes it now")
        rows = [table_rows(self._writing.plan, [change]) for change in last_of_each_key(batch.changes)]
        rows = [each for each in rows if each]
        refusals: list[Refusal] = []
        with _translated(self._where), self._connection.transaction():
            known = self._locked()
            if known != self._known:
                raise UnavailableError(f"{self._where}: another server has written it meanwhile")
            if not known:
                self._replace()
            if rows:
                self._put(rows, refusals)
            # Dead letters must be durable before the position moves behind their changes. Otherwise a crash in between
            # would lose these changes.
            if refusals:
                self._writing.refuse(refusals)
            reached = {str(partition): offset for partition, offset in batch.reached.items()}
            self._save(orjson.dumps(reached).decode())
        self._known = dict(batch.reached)
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _open(self) -> None:
        """Create the table, if there is none, and the row with its position."""
        connection, table = self._connection, self._table
        if not _exists(connection, table.positions):
            self._do(table.create_positions_statement())
        with connection.transaction():
            self._do(table.insert_position(), table.name, self._writing.name)
            # The row with the position stays locked until the table is there. If two servers open the table at once,
            # the second one waits, here or at the insertion of the row, and then finds the table of the first one.
            self._locked()
            if not _exists(connection, table.title):
                self._create()
                # The table is new, so a stored position is that of an earlier table, which somebody has dropped. That
                # position is cleared, so that all rows are written again.
                self._save("{}")
            elif _description(connection, table.title) != table.description:
                raise UnavailableError(
                    f"{self._where}: {table.title} is a table already, which no sink of "
                    f"{self._writing.plan.dataset.name} has made"
                )

    def _locked(self) -> dict[int, int]:
        """Lock the row of the table's position until the transaction ends, and return the position of this sink."""
        found = self._do(self._table.lock_position(), self._table.name).fetchone()
        if found is None:
            raise UnavailableError(f"{self._where}: the row of {self._table.title} in {POSITIONS} is gone")
        sink, positions = found
        if sink != self._writing.name:
            return {}
        return {int(partition): offset for partition, offset in positions.items()}

    def _replace(self) -> None:
        """Remove the rows that an earlier sink has left, which may not be in the dataset any more."""
        connection, table = self._connection, self._table
        if connection.execute(_SHAPE, [table.title]).fetchall() == list(table.shape()):
            self._do(f"DELETE FROM {table.title}")  # noqa: S608 (the name is quoted)
        else:
            # The table of the earlier sink has other columns, so a new one takes its place.
            self._do(f"DROP TABLE {table.title}")
            self._create()

    def _create(self) -> None:
        for statement in self._table.create_statements():
            self._do(statement)

    def _save(self, positions: str) -> None:
        self._do(self._table.save_position(), positions, self._writing.name, self._table.name)

    def _do(self, statement: str, *values: object) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(statement.encode(), values or None)

    def _put(self, rows: Sequence[Sequence[TableRow]], refusals: list[Refusal]) -> None:
        """Write the rows of each change; the changes that Postgres refuses are found by halving."""
        try:
            # The inner transaction is a savepoint: if Postgres refuses a value, only these rows are rolled back.
            with self._connection.transaction():
                self._merge(list(chain.from_iterable(rows)))
        except REFUSED as error:
            if not self._writing.keep():
                raise UnavailableError("another server writes it now") from None
            if len(rows) == 1:
                refusals.append(Refusal(rows[0][0].change, _spelled(error)))
                return
            middle = len(rows) // 2
            self._put(rows[:middle], refusals)
            self._put(rows[middle:], refusals)

    def _merge(self, rows: Sequence[TableRow]) -> None:
        values = [self._table.values(row) for row in rows]
        with self._connection.cursor() as cursor:
            with cursor.copy(self._table.copy().encode()) as copy:
                copy.set_types(self._table.staged_types)
                for each in values:
                    copy.write_row(each)
            for statement in self._table.merge():
                cursor.execute(statement.encode())


def _where(plan: SinkPlan, sign_in: SignIn) -> str:
    return place_of(_system_of(plan), sign_in.endpoints)


def _system_of(plan: SinkPlan) -> PostgresSystem:
    connector = plan.sink.connector
    assert isinstance(connector, TableConnector)  # noqa: S101 (the planner chooses the writer)
    assert isinstance(connector.system, PostgresSystem)  # noqa: S101 (as above)
    return connector.system


def _connected(plan: SinkPlan, sign_in: SignIn) -> Connection:
    system = _system_of(plan)
    parameters = {
        "tcp_user_timeout": LOST_MS,
        "client_encoding": "utf-8",
        **connection_parameters(system, sign_in.resolve, sign_in.endpoints, SETTINGS),
    }
    with _translated(_where(plan, sign_in)):
        return psycopg.connect(**parameters, autocommit=True)


def _table_of(connection: Connection, plan: SinkPlan, product: Product, where: str) -> SinkTable:
    """Return the table of a sink, in the schema that its name has, or else in the one that the session has."""
    *schema, name = name_parts(plan.target, where)
    if len(schema) > 1:
        raise UnavailableError(f"{where}: {plan.target} has more than a schema and a name")
    if not schema:
        (current,) = connection.execute("SELECT current_schema()").fetchone() or (None,)
        if current is None:
            raise UnavailableError(f"{where}: the user has no schema of its own; write the table as schema.table")
        schema = [current]
    table = SinkTable(plan, product, schema[0], name)
    if long := table.too_long():
        raise UnavailableError(f"{where}: Postgres cuts names behind {NAME_BYTES} bytes; shorten {long}")
    return table


def _exists(connection: Connection, title: str) -> bool:
    (oid, _) = connection.execute(_OID, [title, title]).fetchone() or (None, None)
    return oid is not None


def _description(connection: Connection, title: str) -> str | None:
    (_, found) = connection.execute(_OID, [title, title]).fetchone() or (None, None)
    assert found is None or isinstance(found, str)  # noqa: S101 (its type in Postgres)
    return found


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that the table of a sink can be written, or be created.

    Raises:
        CommitError: Postgres doesn't answer or refuses, or the table is somebody else's.
        UnavailableError, UnknownEntityError: A secret can't be looked up.
    """
    where = _where(plan, sign_in)
    with _connected(plan, sign_in) as connection, _translated(where):
        table = _table_of(connection, plan, "caraway", where)
        if connection.execute("SELECT to_regnamespace(quote_ident(%s))", [table.schema]).fetchone() == (None,):
            raise CommitError(f"{where}: there is no schema {table.schema}; create it, since a sink doesn't")
        may_use, may_create, may_stage = connection.execute(_RIGHTS, {"schema": table.schema}).fetchone() or (0, 0, 0)
        if not (may_use and may_create and may_stage):
            raise CommitError(
                f"{where}: the user needs USAGE and CREATE on the schema {table.schema}, and TEMPORARY on the database"
            )
        if _exists(connection, table.title) and _description(connection, table.title) != table.description:
            raise CommitError(
                f"{where}: {table.title} is a table already, which no sink of {plan.dataset.name} has made; "
                "choose another name"
            )


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, OSError) as error:
        raise UnavailableError(f"{where}: {_spelled(error)}{_remedy(error)}") from None


def _spelled(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _remedy(error: Exception) -> str:
    match error:
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return "; correct the user's name or password"
        case errors.InsufficientPrivilege():
            return "; the user needs CREATE on the schema, and owns the table"
        case errors.LockNotAvailable():
            return f"; the table was locked for more than {LOCK_S} s"
        case errors.DependentObjectsStillExist():
            return "; remove what depends on the table, whose columns are other ones now"
        case _:
            return ""
