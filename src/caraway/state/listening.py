"""Notifications from Postgres that something was committed, so that listeners needn't wait for their next poll.

Triggers on the tables send the notifications, and Postgres delivers them when a change is committed. A notification may
get lost with the connection, or in a connection pooler, so every listener also polls.
"""

from collections.abc import Callable
from contextlib import closing

import psycopg
import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring

CHANNEL = "caraway"
# The number of seconds for which the thread waits for a notification before it looks whether it is to stop.
LOOK_S = 0.5
RETRY_S = 1.0


class Listener(Recurring):
    """Calls a function when branches, secrets, erased keys, tokens or roles have changed, in a thread."""

    def __init__(self, engine: sa.Engine, on_change: Callable[[], None]) -> None:
        """Listen through `engine` (`caraway.state.database.connect`), by a connection that is kept open.

        `on_change` is also called whenever listening begins, since changes before that cause no notification. It must
        return at once.
        """
        super().__init__("postgres-listener", self._listen, RETRY_S, at_once=True)
        self._engine = engine
        self._on_change = on_change

    def _listen(self) -> None:
        """Listen until the connection is lost or the thread is to stop."""
        try:
            with closing(self._connect()) as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                self._on_change()
                while not self.stopping.is_set():
                    for _ in connection.notifies(timeout=LOOK_S):
                        self._on_change()
        except (psycopg.Error, sa.exc.DBAPIError) as error:
            raise UnavailableError(f"Postgres doesn't answer ({error})") from error

    def _connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Return a connection that is opened like those of the engine's pool but doesn't belong to it."""
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert isinstance(connection, psycopg.Connection)  # noqa: S101 (`connect` chooses the driver)
        connection.autocommit = True
        return connection
