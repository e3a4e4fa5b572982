"""Hearing from Postgres that something was committed, at once and not at the next look.

Triggers on the tables notify, so code that changes them need not think of it; Postgres passes the notice on when the
change is committed. It may get lost with the connection, or not come through a pooler, so every listener also polls.
"""

from collections.abc import Callable
from contextlib import closing

import psycopg
import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.recurring import Recurring

CHANNEL = "caraway"
# How soon it is seen that the listening is to end.
LOOK_S = 0.5
RETRY_S = 1.0


class Listener:
    """Calls a function when branches, secrets, erased keys, tokens or roles have changed, in a thread."""

    def __init__(self, engine: sa.Engine, on_change: Callable[[], None]) -> None:
        """Listen through `engine` (`caraway.state.connect`), by a connection that is kept open.

        `on_change` is also called whenever it begins to listen, as no notice tells what was changed before. It must
        return at once.
        """
        self._engine = engine
        self._on_change = on_change
        self._recurring = Recurring("postgres-listener", self._listen, RETRY_S, at_once=True)

    def start(self) -> None:
        """Begin."""
        self._recurring.start()

    def stop(self, timeout_s: float) -> None:
        """End."""
        self._recurring.stop(timeout_s)

    def _listen(self) -> None:
        """Listen until the connection is lost, or this is to end."""
        try:
            with closing(self._connect()) as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                self._on_change()
                while not self._recurring.stopping.is_set():
                    for _ in connection.notifies(timeout=LOOK_S):
                        self._on_change()
        except (psycopg.Error, sa.exc.DBAPIError) as error:
            raise UnavailableError(f"Postgres doesn't answer ({error})") from error

    def _connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Open a connection as the engine would, which isn't one of its pool."""
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert isinstance(connection, psycopg.Connection)  # noqa: S101 (`connect` chooses the driver)
        connection.autocommit = True
        return connection
