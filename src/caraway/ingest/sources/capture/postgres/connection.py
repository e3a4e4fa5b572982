"""Connections to a Postgres server whose tables are captured."""

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from caraway.addresses.postgres_parameters import connection_parameters, place_of
from caraway.errors import UnavailableError
from caraway.graph.systems import PostgresSystem
from caraway.ingest.sources.capture.postgres.values import SESSION
from caraway.ingest.sources.reader import Resolve

# A statement may take so long. The first rows behind a key come by its index, so a chunk takes a fraction of a second.
STATEMENT_S = 60


class Server:
    """Opens connections, each with the credentials of that moment."""

    def __init__(self, system: PostgresSystem, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Prepare for a system; `resolve` returns secrets, `endpoints` has addresses of systems in this deployment."""
        self._system = system
        self._resolve = resolve
        self._endpoints = endpoints
        self.where = place_of(system, endpoints)

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """Return a connection for queries, in autocommit."""
        settings = {**SESSION, "statement_timeout": f"{STATEMENT_S}s", "idle_in_transaction_session_timeout": "60s"}
        try:
            return psycopg.connect(**self._parameters(settings), autocommit=True)
        except psycopg.Error as error:
            raise UnavailableError(f"{self.where}: {spelled(error)}") from None

    def replicate(self) -> PGconn:
        """Return a connection of the replication protocol, which understands only its commands."""
        parameters = {**self._parameters(SESSION), "replication": "database"}
        made = pq.PGconn.connect(psycopg.conninfo.make_conninfo(**parameters).encode())
        if made.status != pq.ConnStatus.OK:
            message = made.get_error_message()
            made.finish()
            raise UnavailableError(f"{self.where}: {message.strip()}")
        return made

    def identity(self) -> str:
        """Return the number of the database cluster, which its standbys share."""
        connection = self.replicate()
        try:
            result = connection.exec_(b"IDENTIFY_SYSTEM")
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise UnavailableError(f"{self.where}: {result.get_error_message().strip()}")
            return (result.get_value(0, 0) or b"").decode()
        finally:
            connection.finish()

    def _parameters(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return connection_parameters(self._system, self._resolve, self._endpoints, settings)


def query(connection: "psycopg.Connection[tuple[Any, ...]]", where: str, text: LiteralString, *values: object) -> Any:
    """Return the rows of a query. Raises `UnavailableError` with what Postgres says."""
    try:
        return connection.execute(text, values).fetchall()
    except psycopg.Error as error:
        raise UnavailableError(f"{where}: {spelled(error)}") from None


def spelled(error: psycopg.Error) -> str:
    """Return the message of an error, on one line."""
    return " ".join(str(error).split())
