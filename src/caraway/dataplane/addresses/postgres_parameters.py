"""The parameters of JDBC that have a meaning for Postgres, and the settings of libpq that they stand for.

`schema` isn't one of libpq: it is the search path of the session.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from caraway.dataplane.addresses.names import Parameters, host_and_port, jdbc_params, truth
from caraway.dataplane.addresses.reach import pinned
from caraway.graph.systems import PostgresSystem, Secretish

CONNECT_S = 10
# The path of a password file that can't exist. Without it, libpq would send a password from the server's own ~/.pgpass
# if the definition's password is empty.
NO_PASSWORDS = f"{os.devnull}/none"

_SSL_MODES = {mode: mode for mode in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")}
_TARGETS = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "prefersecondary": "prefer-standby",
    "preferslave": "prefer-standby",
}
POSTGRES_PARAMETERS: Parameters = {
    "sslmode": lambda value: {"sslmode": _SSL_MODES[value.casefold()]},
    "ssl": lambda value: {"sslmode": "verify-full"} if truth(value) else {"sslmode": "disable"},
    "sslrootcert": lambda value: {"sslrootcert": value},
    "sslcert": lambda value: {"sslcert": value},
    "sslkey": lambda value: {"sslkey": value},
    "connecttimeout": lambda value: {"connect_timeout": int(value)},
    "logintimeout": lambda value: {"connect_timeout": int(value)},
    "sockettimeout": lambda value: {"tcp_user_timeout": int(value) * 1000},
    "tcpkeepalive": lambda value: {"keepalives": int(truth(value))},
    "applicationname": lambda value: {"application_name": value},
    "currentschema": lambda value: {"schema": value},
    "targetservertype": lambda value: {"target_session_attrs": _TARGETS[value.casefold()]},
}


def quote(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def place_of(system: PostgresSystem, endpoints: Mapping[str, str]) -> str:
    """Return the database as messages name it."""
    host, port = host_and_port(endpoints.get(system.name), system.host, system.port)
    return f"Postgres {system.name} at {host}:{port}, database {system.database}"


def connection_parameters(
    system: PostgresSystem,
    resolve: Callable[[Secretish], str],
    endpoints: Mapping[str, str],
    settings: Mapping[str, str],
) -> dict[str, Any]:
    """Return the parameters of libpq for a connection.

    Args:
        system: The database.
        resolve: Returns the values of secrets.
        endpoints: This deployment's addresses of systems, by their names.
        settings: Settings of the session.

    Raises:
        UnavailableError: A parameter of the address isn't known, its host isn't or may not be reached, or a secret
            can't be looked up.
        UnknownEntityError: A secret doesn't exist.
    """
    host, port = host_and_port(endpoints.get(system.name), system.host, system.port)
    given = jdbc_params(system.jdbc_params, POSTGRES_PARAMETERS, place_of(system, endpoints), resolve)
    schema = given.pop("schema", None)
    options = dict(settings)
    if schema is not None:
        options["search_path"] = ", ".join(quote(name.strip()) for name in str(schema).split(","))
    return {
        **pinned(host, port),
        "dbname": system.database,
        "user": resolve(system.username),
        "password": resolve(system.password),
        "passfile": NO_PASSWORDS,
        "application_name": "caraway",
        "connect_timeout": CONNECT_S,
        # With these settings it is noticed within a minute that the server has become unreachable.
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "options": " ".join(f"-c {name}={_escaped(value)}" for name, value in options.items()),
        **given,
    }


def _escaped(value: str) -> str:
    """Return a value for libpq's options, in which a blank separates and a backslash escapes."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
