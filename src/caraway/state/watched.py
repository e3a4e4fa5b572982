"""The positions on topics up to which a watch has looked, which move in the transaction that records its findings."""

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
        return self._numbers(watch_positions.c.positions, key)

    def epochs(self, key: str) -> dict[int, int]:
        """Return epochs in which the topic had all records before the positions, by partition, where one is known."""
        return self._numbers(watch_positions.c.epochs, key)

    def go_back(self, key: str, offsets: Mapping[int, int]) -> None:
        """Move positions back to some offsets, from which on other records are in the places of lost ones."""
        self._in_transaction(lambda c: _go_back(c, self._of(key), offsets), f"forget what was {self._found}")

    def _record(
        self,
        key: str,
        since: Mapping[int, int],
        until: Mapping[int, int],
        write: Callable[[sa.Connection], None],
        allowed: Callable[[sa.Connection], bool],
        *,
        epochs: Mapping[int, int] | None = None,
    ) -> bool:
        """Write the findings of a pass and move its positions on, and return whether they count now.

        With `epochs`, in which the topic had all records before the new positions, later losses of records are noticed.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def record(connection: sa.Connection) -> bool:
            if not allowed(connection) or not self._advance(connection, key, since, until, epochs or {}):
                # An earlier try of this transaction may have succeeded although its answer was lost. Then the table has
                # the new positions already, and the findings count.
                return self._recorded(connection, key) == until
            write(connection)
            return True

        return self._in_transaction(record, f"record what was {self._found}")

    def _numbers(self, column: sa.Column[Any], key: str) -> dict[int, int]:
        query = sa.select(column).where(*self._of(key))
        return self._in_transaction(
            lambda connection: _by_partition(connection.execute(query).scalar()), f"read what was {self._found}"
        )

    def _of(self, key: str) -> tuple[sa.ColumnElement[bool], ...]:
        return watch_positions.c.watch == self._watch, watch_positions.c.key == key

    def _recorded(self, connection: sa.Connection, key: str) -> dict[int, int]:
        query = sa.select(watch_positions.c.positions).where(*self._of(key)).with_for_update()
        return _by_partition(connection.execute(query).scalar())

    def _advance(
        self,
        connection: sa.Connection,
        key: str,
        since: Mapping[int, int],
        until: Mapping[int, int],
        epochs: Mapping[int, int],
    ) -> bool:
        """Move the positions on, if they are still those from which the pass began."""
        first = insert(watch_positions).values(watch=self._watch, key=key, positions={})
        connection.execute(first.on_conflict_do_nothing())
        if self._recorded(connection, key) != since:
            return False
        before = _by_partition(connection.execute(sa.select(watch_positions.c.epochs).where(*self._of(key))).scalar())
        same = {p: epoch for p, epoch in before.items() if since.get(p) == until.get(p)}
        moved = {"positions": _texts(until), "epochs": _texts({**same, **epochs}), "moved_at": NOW}
        connection.execute(sa.update(watch_positions).where(*self._of(key)).values(moved))
        return True


class ServedPositions(Store):
    """The positions of all watches of served features, which read the archive's table of them. Thread safe."""

    def go_back(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Move the positions back to some offsets, behind which the table has no more rows.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        which = (watch_positions.c.key == topic_id,)
        self._in_transaction(lambda c: _go_back(c, which, offsets), "forget which served features were looked at")


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


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    """Return numbers by partition as JSON has them, whose keys are texts."""
    return {str(partition): number for partition, number in numbers.items()}


def _go_back(connection: sa.Connection, which: Sequence[sa.ColumnElement[bool]], offsets: Mapping[int, int]) -> None:
    table = watch_positions
    query = sa.select(table.c.watch, table.c.key, table.c.positions).where(*which).with_for_update()
    for row in connection.execute(query).all():
        known = _by_partition(row.positions)
        back = {p: min(at, offsets.get(p, at)) for p, at in known.items()}
        one = (table.c.watch == row.watch) & (table.c.key == row.key)
        connection.execute(sa.update(table).where(one).values(positions=_texts(back)))
