"""The parameters of JDBC that have a meaning for Postgres, and the settings of libpq that they stand for.

`schema` isn't one of libpq: it is the search path of the session.
"""

from caraway.addresses.names import Parameters, truth

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
