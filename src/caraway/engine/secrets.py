"""Secrets for the functions of an engine's jobs."""

from sqlalchemy.exc import ProgrammingError

from caraway.errors import UnavailableError
from caraway.recurring import Recurring
from caraway.spark.secret_port import SecretPort, open_port
from caraway.state.secret_store import SecretStore

# A changed secret is known to the engine after this time; while Postgres is away what was known last goes on.
INTERVAL_SECONDS = 5.0


def hand_out(store: SecretStore, *, local: bool, host: str) -> SecretPort:
    """Let the functions of this engine's jobs get the secrets of a store, which is kept up to date.

    Args:
        store: The secrets.
        local: Whether Spark runs on this machine only.
        host: The name of this machine, where workers on others find it.
    """
    Recurring("secrets", lambda: _follow(store), INTERVAL_SECONDS, at_once=True).start()
    return open_port(store.get, "127.0.0.1" if local else host)


def _follow(store: SecretStore) -> None:
    try:
        store.refresh()
    except ProgrammingError as error:
        raise UnavailableError("the tables are being set up") from error
