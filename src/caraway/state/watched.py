"""The positions on topics up to which a watch has looked, which move in the transaction that records its findings."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.database import Store
from caraway.state.tables import leases, watch_positions

NOW = sa.func.clock_timestamp()
# The name of the lease of the process that runs the watches.
LEASE = "monitoring"


def watcher(data_dir: Path) -> str:
    """Return the name of the process of watches that a server with this data folder starts; it runs one at a time."""
    return f"{socket.gethostname()}:{data_dir}"


class WatchedStore(Store):
    """The base of stores of findings. Thread safe; all methods raise `UnavailableError` if Postgres doesn't answer.

    A row counts once, whenever the process that counts is killed, since positions and findings are written together.
    """

    def __init__(self, engine: sa.Engine, watch: str, *, found: str) -> None:
        """Work through `engine` (`caraway.state.database.connect`).

        Args:
            engine: The database.
            watch: The name of the watch, such as "skew".
            found: The word for what the watch does to rows, for messages, such as "compared".
        """
        super().__init__(engine)
        self._watch = watch
        self._found = found

    def positions(self, key: str) -> dict[int, int]:
        """Return the positions up to which rows were looked at, by partition."""
        query = sa.select(watch_positions.c.positions).where(*self._of(key))
        return self._in_transaction(
            lambda connection: _by_partition(connection.execute(query).scalar()), f"read what was {self._found}"
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

    def _of(self, key: str) -> tuple[sa.ColumnElement[bool], ...]:
        return watch_positions.c.watch == self._watch, watch_positions.c.key == key

    def _recorded(self, connection: sa.Connection, key: str) -> dict[int, int]:
        query = sa.select(watch_positions.c.positions).where(*self._of(key)).with_for_update()
        return _by_partition(connection.execute(query).scalar())

    def _advance(self, connection: sa.Connection, key: str, since: Mapping[int, int], until: Mapping[int, int]) -> bool:
        """Move the positions on, if they are still those from which the pass began."""
        first = insert(watch_positions).values(watch=self._watch, key=key, positions={})
        connection.execute(first.on_conflict_do_nothing())
        if self._recorded(connection, key) != since:
            return False
        moved = {str(partition): offset for partition, offset in until.items()}
        connection.execute(sa.update(watch_positions).where(*self._of(key)).values(positions=moved, moved_at=NOW))
        return True


class WatchLease(Store):
    """The lease under which a process runs the watches, as others see it. Thread safe."""

    def is_held(self, *, besides: str) -> bool:
        """Return whether a process of another name runs the watches now.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        held = leases.c.name == LEASE, leases.c.expires_at > NOW, leases.c.holder != besides
        query = sa.select(sa.literal(1)).where(*held)
        return self._in_transaction(
            lambda connection: connection.execute(query).first() is not None, "look for the process of the watches"
        )


def _by_partition(found: Mapping[str, int] | None) -> dict[int, int]:
    return {int(partition): offset for partition, offset in (found or {}).items()}
