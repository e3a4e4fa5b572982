"""Connections to a Postgres server whose tables are captured."""

import select
from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from caraway.dataplane.addresses.postgres_parameters import connection_parameters, place_of
from caraway.dataplane.sources.cdc.postgres.values import SESSION
from caraway.dataplane.sources.reader import Resolve
from caraway.errors import UnavailableError
from caraway.graph.systems import PostgresSystem

# The most seconds that a statement may take. A chunk takes a fraction of a second, since the index of the key finds its
# rows.
STATEMENT_S = 60
# The most seconds of one wait for an answer; `next_result` then waits again.
WAIT_S = 10.0

Connection = psycopg.Connection[tuple[Any, ...]]


class Server:
    """Opens connections, each with the credentials of that moment."""

    def __init__(self, system: PostgresSystem, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Prepare for a system; `resolve` returns secrets, `endpoints` has addresses of systems in this deployment."""
        self._system = system
        self._resolve = resolve
        self._endpoints = endpoints
        self.where = place_of(system, endpoints)

    def connect(self) -> Connection:
        """Return a connection for queries, in autocommit."""
        settings = {**SESSION, "statement_timeout": f"{STATEMENT_S}s", "idle_in_transaction_session_timeout": "60s"}
        return self._connected(self._parameters(settings))

    def replicate(self) -> Connection:
        """Return a connection of the replication protocol, which understands only the commands that libpq sends.

        psycopg waits for it without Python's lock. libpq's own function would stop all threads of the server until a
        server that doesn't answer is given up.
        """
        return self._connected({**self._parameters(SESSION), "replication": "database"})

    def identity(self) -> str:
        """Return the number of the database cluster, which its standbys share."""
        with self.replicate() as connection:
            result = connection.pgconn.exec_(b"IDENTIFY_SYSTEM")
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise UnavailableError(f"{self.where}: {result.get_error_message().strip()}")
            return (result.get_value(0, 0) or b"").decode()

    def _connected(self, parameters: Mapping[str, Any]) -> Connection:
        try:
            return psycopg.connect(**parameters, autocommit=True)
        except psycopg.Error as error:
            raise UnavailableError(f"{self.where}: {spelled(error)}") from None

    def _parameters(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return connection_parameters(self._system, self._resolve, self._endpoints, settings)


def wait_for(connection: PGconn, timeout_s: float) -> None:
    """Wait until bytes have come, or some seconds have passed; other threads run meanwhile.

    `select.select` would refuse a socket whose number is above 1,023, as those of a server with many files can be.
    """
    poller = select.poll()
    poller.register(connection.socket, select.POLLIN)
    poller.poll(1_000 * timeout_s)


def next_result(connection: PGconn) -> PGresult | None:
    """Return the next result of a query that was sent.

    libpq's own function would wait with Python's lock, so that all threads of the server would stop until the database
    answers.
    """
    while connection.is_busy():
        wait_for(connection, WAIT_S)
        connection.consume_input()
    return connection.get_result()


def query(connection: Connection, where: str, text: LiteralString, *values: object) -> Any:
    """Return the rows of a query. Raises `UnavailableError` with what Postgres says."""
    try:
        return connection.execute(text, values).fetchall()
    except psycopg.Error as error:
        raise UnavailableError(f"{where}: {spelled(error)}") from None


def spelled(error: psycopg.Error) -> str:
    """Return the message of an error, on one line."""
    return " ".join(str(error).split())
