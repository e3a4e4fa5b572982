"""Secrets for the functions of an engine's jobs."""

from sqlalchemy.exc import ProgrammingError

from caraway.errors import UnavailableError
from caraway.recurring import Recurring
from caraway.spark.secret_port import SecretPort, open_port
from caraway.state.secret_store import SecretStore

# The engine sees a changed secret after this time; while Postgres is unreachable it uses the secrets read last.
INTERVAL_SECONDS = 5.0


def hand_out(store: SecretStore, *, local: bool, host: str) -> SecretPort:
    """Open a port at which the functions of this engine's jobs read secrets; keep the store up to date in a thread.

    Args:
        store: The secrets.
        local: True if Spark runs on this machine only.
        host: The name of this machine by which workers on others reach it.
    """
    Recurring("secrets", lambda: _follow(store), INTERVAL_SECONDS, at_once=True).start()
    return open_port(store.get, "127.0.0.1" if local else host)


def _follow(store: SecretStore) -> None:
    try:
        store.refresh()
    except ProgrammingError as error:
        raise UnavailableError("the tables are being set up") from error
