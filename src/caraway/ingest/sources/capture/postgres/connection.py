"""Connections to a Postgres server whose tables are captured."""

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from caraway.addresses.names import host_and_port, jdbc_params
from caraway.addresses.postgres_parameters import POSTGRES_PARAMETERS, quote
from caraway.errors import UnavailableError
from caraway.graph.systems import PostgresSystem
from caraway.ingest.sources.capture.postgres.values import SESSION
from caraway.ingest.sources.reader import Resolve

CONNECT_S = 10
# A statement may take so long. The first rows behind a key come by its index, so a chunk takes a fraction of a second.
STATEMENT_S = 60


class Server:
    """Opens connections, each with the credentials of that moment."""

    def __init__(self, system: PostgresSystem, resolve: Resolve, endpoints: Mapping[str, str]) -> None:
        """Prepare for a system; `resolve` returns secrets, `endpoints` has addresses of systems in this deployment."""
        self._system = system
        self._resolve = resolve
        self._host, self._port = host_and_port(endpoints.get(system.name), system.host, system.port)
        self.where = f"Postgres {system.name} at {self._host}:{self._port}, database {system.database}"

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
        system = self._system
        given = jdbc_params(system.jdbc_params, POSTGRES_PARAMETERS, self.where)
        schema = given.pop("schema", None)
        options = dict(settings)
        if schema is not None:
            options["search_path"] = ", ".join(quote(name.strip()) for name in str(schema).split(","))
        return {
            "host": self._host,
            "port": self._port,
            "dbname": system.database,
            "user": self._resolve(system.username),
            "password": self._resolve(system.password),
            "application_name": "caraway",
            "connect_timeout": CONNECT_S,
            # A server that is cut off without a word is noticed within a minute.
            "keepalives_idle": 20,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "options": " ".join(f"-c {name}={_escaped(value)}" for name, value in options.items()),
            **given,
        }


def _escaped(value: str) -> str:
    """Return a value for libpq's options, in which a blank separates and a backslash escapes."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def query(connection: "psycopg.Connection[tuple[Any, ...]]", where: str, text: LiteralString, *values: object) -> Any:
    """Return the rows of a query. Raises `UnavailableError` with what Postgres says."""
    try:
        return connection.execute(text, values).fetchall()
    except psycopg.Error as error:
        raise UnavailableError(f"{where}: {spelled(error)}") from None


def spelled(error: psycopg.Error) -> str:
    """Return the message of an error, on one line."""
    return " ".join(str(error).split())
