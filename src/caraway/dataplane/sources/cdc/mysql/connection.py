"""Connections to a MySQL or MariaDB server whose tables are captured."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from caraway.dataplane.addresses.names import host_and_port, jdbc_params
from caraway.dataplane.sources.reader import Resolve
from caraway.dataplane.sources.tables.mysql_connection import (
    MYSQL_PARAMETERS,
    DatabaseConnection,
    connection_keywords,
    is_mariadb,
)
from caraway.errors import UnavailableError
from caraway.graph.systems import MySQLSystem

try:
    import pymysql
    from pymysql.connections import Connection
    from pymysql.constants import ER
except ImportError as error:
    raise UnavailableError("MySQL is read by PyMySQL, which is missing: pip install caraway[mysql]") from error

# The seconds for which a statement waits for a lock, such as that of a long ALTER TABLE.
LOCK_S = 10

_RIGHTS = (
    "; run `GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO` this user (on MariaDB, REPLICATION CLIENT is called "
    "BINLOG MONITOR, too), and GRANT SELECT on the table"
)
_REMEDIES = {
    ER.ACCESS_DENIED_ERROR: "; correct the user's name or password",
    ER.DBACCESS_DENIED_ERROR: "; grant SELECT on the database to this user",
    ER.TABLEACCESS_DENIED_ERROR: "; grant SELECT on the table to this user",
    ER.SPECIFIC_ACCESS_DENIED_ERROR: _RIGHTS,
    # The server gives this error if no event begins at the position that was asked for. Its message depends on the
    # bytes at that position, and names no remedy.
    ER.MASTER_FATAL_ERROR_READING_BINLOG: "; if this is another server, or somebody ran RESET MASTER, give the address "
    "of the server that was read, or raise the version of the dataset, which loads the table anew",
    # The error for a user who may not list prepared transactions.
    ER.XAER_RMERR: "; run `GRANT XA_RECOVER_ADMIN ON *.* TO` this user",
    ER.LOCK_WAIT_TIMEOUT: f"; the table was locked for more than {LOCK_S} s",
}


class Server:
    """Opens connections, each with the credentials of that moment."""

    def __init__(self, system: MySQLSystem, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Prepare for a system; `resolve` returns secrets, `endpoints` has addresses of systems in this deployment."""
        self._system = system
        self._resolve = resolve
        self._host, self._port = host_and_port(endpoints.get(system.name), system.host, system.port)
        self.where = f"MySQL {system.name} at {self._host}:{self._port}, database {system.database}"
        # The arguments are built once and not per connection, since they may need certificates to be read. A stream
        # opens two connections each time that a transaction is read again.
        self._keywords = connection_keywords(jdbc_params(system.jdbc_params, MYSQL_PARAMETERS, self.where, resolve))

    def keywords(self) -> dict[str, Any]:
        """Return the arguments of PyMySQL for a connection."""
        system = self._system
        return {
            **self._keywords,
            "host": self._host,
            "port": self._port,
            "database": system.database,
            "user": self._resolve(system.username),
            "password": self._resolve(system.password),
        }

    def connect(self) -> "Queries":
        """Return a connection for queries, whose times are in UTC and whose snapshots stay."""
        with errors(self.where):
            connection = DatabaseConnection(**self.keywords())
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"SET SESSION time_zone = '+00:00', lock_wait_timeout = {LOCK_S}, sql_mode = ''")
                    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            except BaseException:
                connection.close()
                raise
        return Queries(connection, self.where)


class Queries:
    """A connection for queries. Its methods raise `UnavailableError` with what the server says, and the remedy."""

    def __init__(self, connection: "Connection[Any]", where: str) -> None:
        """Wrap a connection; `where` is the server, for messages."""
        self.connection = connection
        self.where = where
        self.is_mariadb = is_mariadb(connection)

    def all(self, statement: str, *values: object) -> Sequence[Any]:
        """Return the rows of a query."""
        with errors(self.where), self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def setting(self, name: str) -> str | None:
        """Return a variable of the server, in upper case; None if it has none of this name."""
        rows = self.all("SHOW GLOBAL VARIABLES WHERE variable_name = %s", name)
        return str(rows[0][1]).upper() if rows else None

    def close(self) -> None:
        """End the connection."""
        with suppress(pymysql.Error, OSError):
            self.connection.close()


@contextmanager
def errors(where: str) -> Iterator[None]:
    """Raise the errors of the driver as `UnavailableError`."""
    try:
        yield
    except (pymysql.Error, OSError) as error:
        raise UnavailableError(f"{where}: {spelled(error)}") from None


def spelled(error: Exception) -> str:
    """Return the message of an error, on one line, with the remedy."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = " ".join(str(part) for part in error.args[1:]) or str(error) or type(error).__name__
    return " ".join(text.split()) + _REMEDIES.get(number, "")
