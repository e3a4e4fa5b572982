"""Connections to MySQL and MariaDB, for tables and for logs."""

import ssl
from collections.abc import Mapping
from typing import Any

from caraway.dataplane.addresses.names import Parameters, truth
from caraway.errors import UnavailableError

try:
    from pymysql.connections import Connection
except ImportError as error:
    raise UnavailableError("MySQL is read by PyMySQL, which is missing: pip install caraway[mysql]") from error

# The seconds for which a connection and a statement are waited for, the same as for Postgres.
CONNECT_S, STATEMENT_S = 10, 120
# Seconds for which the next packet is awaited. The first packet of a result may take as long as the statement.
READ_S = STATEMENT_S + 10


def connection_keywords(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of PyMySQL that parameters of JDBC (`MYSQL_PARAMETERS`) stand for, and those for all."""
    given = dict(settings)
    mode, files = given.pop("mode", None), given.pop("files", None)
    keywords: dict[str, Any] = {
        "charset": "utf8mb4",
        "autocommit": True,
        "program_name": "caraway",
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        **given,
    }
    if mode == "disable":
        keywords["ssl_disabled"] = True
    elif mode is not None:
        keywords["ssl"] = _tls(str(mode), files if isinstance(files, str) else None)
    return keywords


def _tls(mode: str, file: str | None) -> ssl.SSLContext:
    """Return how the connection is encrypted: by default the server must have a certificate that is trusted."""
    if mode == "required":
        return _unverified()
    context = ssl.create_default_context(cafile=file)
    context.check_hostname = mode == "verify_identity"
    return context


def _unverified() -> ssl.SSLContext:
    """Return an encryption that takes every certificate, without reading those that the system trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class DatabaseConnection(Connection):
    """A connection of PyMySQL. If nothing else is wanted, it is encrypted if the server can do that.

    PyMySQL would read all certificates that the system trusts, which takes longer than to connect, and then check none.
    """

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        # `sslp` is empty only if the definition says nothing about encryption.
        return super()._create_ssl_ctx(sslp) if sslp else _unverified()  # type: ignore[misc]  # the stubs lack it


_MODES = {
    **dict.fromkeys(("disabled", "disable"), "disable"),
    **dict.fromkeys(("required", "trust"), "required"),
    **dict.fromkeys(("verify_ca", "verify-ca"), "verify_ca"),
    **dict.fromkeys(("verify_identity", "verify-full"), "verify_identity"),
}
# The zones that a definition may name for times without a zone: such times are UTC here.
_UTC = {"utc": True, "+00:00": True, "gmt": True, "etc/utc": True}
MYSQL_PARAMETERS: Parameters = {
    "sslmode": lambda value: {} if value.casefold() == "preferred" else {"mode": _MODES[value.casefold()]},
    "usessl": lambda value: {"mode": "required" if truth(value) else "disable"},
    "requiressl": lambda value: {"mode": "required"} if truth(value) else {},
    "verifyservercertificate": lambda value: {"mode": "verify_identity"} if truth(value) else {},
    "serversslcert": lambda value: {"mode": "verify_identity", "files": value.removeprefix("file:")},
    # JDBC gives these two times in milliseconds.
    "connecttimeout": lambda value: {"connect_timeout": max(1, -(-int(value) // 1000))},
    "sockettimeout": lambda value: {"read_timeout": max(1, -(-int(value) // 1000))} if int(value) else {},
    "allowpublickeyretrieval": lambda value: _nothing(truth(value)),
    "characterencoding": lambda value: _nothing(value[:0]),
    "useunicode": lambda value: _nothing(truth(value)),
    "servertimezone": lambda value: _nothing(_UTC[value.casefold()]),
    "connectiontimezone": lambda value: _nothing(_UTC[value.casefold()]),
}


def _nothing(_: object) -> dict[str, object]:
    """Return no settings for a parameter that has no meaning here, but does no harm."""
    return {}


def is_mariadb(connection: "Connection[Any]") -> bool:
    """Return whether the server is a MariaDB."""
    return "mariadb" in str(connection.get_server_info()).casefold()  # type: ignore[no-untyped-call]


def quote(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"
