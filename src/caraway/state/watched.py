"""The positions on topics up to which a watch has looked, which move in the transaction that records its findings."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.database import Store
from caraway.state.tables import leases

NOW = sa.func.clock_timestamp()


def watcher(data_dir: Path) -> str:
    """Return the name of the process that a server with this data folder starts for a watch; it runs one at a time."""
    return f"{socket.gethostname()}:{data_dir}"


class WatchedStore(Store):
    """The base of stores of findings. Thread safe; all methods raise `UnavailableError` if Postgres doesn't answer.

    A row counts once, whenever the process that counts is killed, since positions and findings are written together.
    """

    def __init__(self, engine: sa.Engine, table: sa.Table, *, lease: str, found: str) -> None:
        """Work through `engine` (`caraway.state.database.connect`).

        Args:
            engine: The database.
            table: The table of positions: a key, `positions` by partition, and the time of the last change.
            lease: The name of the lease of the watch's process.
            found: The word for what the watch does to rows, for messages, such as "compared".
        """
        super().__init__(engine)
        self._table = table
        self._lease = lease
        self._found = found
        (self._key,) = table.primary_key.columns
        (self._changed,) = (column for column in table.columns if column.server_default is not None)

    def positions(self, key: str) -> dict[int, int]:
        """Return the positions up to which rows were looked at, by partition."""
        query = sa.select(self._table.c.positions).where(self._key == key)
        return self._in_transaction(
            lambda connection: _by_partition(connection.execute(query).scalar()), f"read what was {self._found}"
        )

    def is_watched(self, *, besides: str) -> bool:
        """Return whether a process of another name runs the watch now."""
        held = leases.c.name == self._lease, leases.c.expires_at > NOW, leases.c.holder != besides
        query = sa.select(sa.literal(1)).where(*held)
        return self._in_transaction(
            lambda connection: connection.execute(query).first() is not None, f"look for the {self._lease} watch"
        )

    def _record(
        self,
        key: str,
        since: Mapping[int, int],
        until: Mapping[int, int],
        write: Callable[[sa.Connection], None],
        allowed: Callable[[sa.Connection], bool],
    ) -> bool:
        """Write the findings of a pass and move its positions on, and return whether they count now.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def record(connection: sa.Connection) -> bool:
            if not allowed(connection) or not self._advance(connection, key, since, until):
                # If the answer to an earlier try of this transaction was lost, its positions are there.
                return self._recorded(connection, key) == until
            write(connection)
            return True

        return self._in_transaction(record, f"record what was {self._found}")

    def _recorded(self, connection: sa.Connection, key: str) -> dict[int, int]:
        query = sa.select(self._table.c.positions).where(self._key == key).with_for_update()
        return _by_partition(connection.execute(query).scalar())

    def _advance(self, connection: sa.Connection, key: str, since: Mapping[int, int], until: Mapping[int, int]) -> bool:
        """Move the positions on, if they are still those from which the pass began."""
        first = insert(self._table).values({"positions": {}, self._key.name: key})
        connection.execute(first.on_conflict_do_nothing())
        if self._recorded(connection, key) != since:
            return False
        moved = {str(partition): offset for partition, offset in until.items()}
        update = sa.update(self._table).where(self._key == key)
        connection.execute(update.values({"positions": moved, self._changed.name: NOW}))
        return True


def _by_partition(found: Mapping[str, int] | None) -> dict[int, int]:
    return {int(partition): offset for partition, offset in (found or {}).items()}
