"""Sessions with Snowflake, over Snowflake's own connector."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from caraway.errors import UnavailableError
from caraway.graph.systems import Secretish, SnowflakeSystem

try:
    import snowflake.connector
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.errors import Error
except ImportError as error:
    raise UnavailableError(
        "Snowflake is reached by snowflake-connector-python, which isn't installed: pip install caraway[snowflake]"
    ) from error

# The connector logs each session and each request that it repeats. A request that fails in the end is an error here.
logging.getLogger("snowflake.connector").setLevel(logging.ERROR)
# Seconds for which the connector tries to sign in, for which it repeats requests, for which it awaits an answer, and
# for which a statement may run. During a long statement Snowflake answers now and then, so that the third limit isn't
# reached.
LOGIN_S, REQUESTS_S, ANSWER_S, STATEMENT_S = 30, 60, 60, 600
# Snowflake's error code for a thing that doesn't exist, and for one that the role may not see.
NOT_FOUND = 2003
_REMEDIES = {
    NOT_FOUND: "check its name, and grant the role the right to it",
    3001: "grant the role the right to it",
    606: "grant the role USAGE on the warehouse, and check the warehouse's name",
    630: f"the statement took more than {STATEMENT_S} s: cluster the table by the cursor, or use a larger warehouse",
    90105: "check the name of the database, and grant the role USAGE on it",
    90106: "check the name of the schema, and grant the role USAGE on it",
    250001: "check the account, and correct the user's name, password or role",
    390100: "correct the user's name or password",
    250003: "check the account and the network",
}


def connect(
    system: SnowflakeSystem, resolve: Callable[[Secretish], str], endpoint: str | None = None
) -> SnowflakeConnection:
    """Open a session, whose zone is UTC and whose statements take their parameters at question marks.

    Args:
        system: The account, and who signs in.
        resolve: Returns the values of secrets.
        endpoint: The address in this deployment, "host:port" or a URL; None for that of the account.

    Raises:
        snowflake.connector.errors.Error: Snowflake doesn't answer, or refuses; see `errors`.
    """
    address: dict[str, Any] = {}
    if endpoint is not None:
        found = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        address = {"host": found.hostname, "port": found.port or 443, "protocol": found.scheme}
    return snowflake.connector.connect(
        account=system.account,
        user=resolve(system.username),
        password=resolve(system.password),
        database=system.database,
        schema=system.schema,
        warehouse=system.warehouse,
        role=system.role,
        application="caraway",
        paramstyle="qmark",
        # NUMBER columns come as decimals, not as floats, which would round long numbers.
        arrow_number_to_decimal=True,
        login_timeout=LOGIN_S,
        network_timeout=REQUESTS_S,
        socket_timeout=ANSWER_S,
        session_parameters={
            "TIMEZONE": "UTC",
            "QUERY_TAG": "caraway",
            "STATEMENT_TIMEOUT_IN_SECONDS": STATEMENT_S,
            "LOCK_TIMEOUT": ANSWER_S,
            "CLIENT_TELEMETRY_ENABLED": False,
        },
        **address,
    )


@contextmanager
def errors(where: str, close: Callable[[], None]) -> Iterator[None]:
    """Raise errors of the connector in the block as `UnavailableError`, with the remedy.

    Args:
        where: The system and the thing in it.
        close: Ends the session, which may be broken.
    """
    try:
        yield
    # The connector passes some errors of its HTTP libraries on.
    except (Error, OSError) as error:
        close()
        text = " ".join(str(error).split())[:500] or type(error).__name__
        remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, "")
        raise UnavailableError(f"{where}: {text}{f'; {remedy}' if remedy else ''}") from None


def quote(name: str) -> str:
    """Return a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


_PART = re.compile(r'"(?:[^"]|"")+"|[^."]+')


def resolved_name(name: str) -> list[str]:
    """Return the parts of a table's name as Snowflake resolves it: those without quotes in upper case.

    Raises:
        UnavailableError: The name isn't written as table, schema.table or database.schema.table.
    """
    found = _PART.findall(name)
    if ".".join(found) != name or not 1 <= len(found) <= 3:
        raise UnavailableError(f'{name!r} is no name of a table; write it as table, schema.table or "a.b".table')
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part.strip().upper() for part in found]
