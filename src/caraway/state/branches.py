"""Creation, cloning and deletion of branches. A clone copies the references of its source: some rows, no data."""

from collections.abc import Callable
from datetime import datetime, timedelta

import sqlalchemy as sa

from caraway.errors import ConflictError, InvalidInputError, UnknownEntityError
from caraway.state.asset_store import Moment, balance, copy_references, lock_asset_store
from caraway.state.clock import KEEP, wall_clock
from caraway.state.database import TIMEOUT_SECONDS, in_transaction
from caraway.state.model import MAIN, Role
from caraway.state.tables import asset_references, branches


class Branches:
    """Creates, clones and deletes branches."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], datetime] = wall_clock,
        keep: timedelta = KEEP,
    ) -> None:
        """Write through `engine` (`database.connect`); an asset that no branch needs is kept for `keep`."""
        self._engine = engine
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._keep = keep

    def create(self, name: str) -> None:
        """Create an empty branch.

        Raises:
            ConflictError: There is one of this name.
            UnavailableError: Postgres doesn't answer; whether the branch was made is then unknown.
        """
        self._do(lambda connection: self._create(connection, name), f"make branch {name}")

    def clone(self, name: str, source: str) -> None:
        """Create a branch with the head and the served commit of another branch, and with all of its data.

        Raises:
            ConflictError: There is one of this name.
            UnknownEntityError: There is no branch `source`.
            UnavailableError: Postgres doesn't answer; whether the branch was made is then unknown.
        """
        self._do(lambda connection: self._clone(connection, name, source), f"clone branch {source}")

    def delete(self, name: str) -> None:
        """Delete a branch. Its commits are kept; assets that no other branch needs are destroyed after a while.

        Raises:
            InvalidInputError: The branch is main.
            UnknownEntityError: There is no such branch.
            UnavailableError: Postgres doesn't answer; whether the branch was deleted is then unknown.
        """
        if name == MAIN:
            raise InvalidInputError(f"branch {MAIN!r} can't be deleted; commit what it shall hold instead")
        self._do(lambda connection: self._delete(connection, name), f"delete branch {name}")

    def _do(self, work: Callable[[sa.Connection], None], what: str) -> None:
        in_transaction(self._engine, work, what=what, timeout_seconds=self._timeout_seconds)

    def _create(self, connection: sa.Connection, name: str) -> None:
        lock_asset_store(connection)
        _require_new(connection, name)
        connection.execute(sa.insert(branches).values(name=name, created_at=self._clock()))

    def _clone(self, connection: sa.Connection, name: str, source: str) -> None:
        lock_asset_store(connection)
        _require_new(connection, name)
        row = connection.execute(
            sa.select(branches.c.head, branches.c.serving).where(branches.c.name == source)
        ).first()
        if row is None:
            raise UnknownEntityError(f"there is no branch {source!r} to clone")
        connection.execute(
            sa.insert(branches).values(name=name, head=row.head, serving=row.serving, created_at=self._clock())
        )
        for role in Role:
            copy_references(connection, (source, role), (name, role))

    def _delete(self, connection: sa.Connection, name: str) -> None:
        lock_asset_store(connection)
        connection.execute(sa.delete(asset_references).where(asset_references.c.branch == name))
        if connection.execute(sa.delete(branches).where(branches.c.name == name)).rowcount == 0:
            raise UnknownEntityError(f"there is no branch {name!r}")
        balance(connection, Moment(self._clock(), self._keep))


def _require_new(connection: sa.Connection, name: str) -> None:
    if connection.execute(sa.select(branches.c.name).where(branches.c.name == name)).first() is not None:
        raise ConflictError(f"there is a branch {name!r} already; choose another name, or check it out")
