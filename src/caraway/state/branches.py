"""Creation, cloning and deletion of branches. A clone copies the references of its source: some rows, no data."""

from collections.abc import Collection

import sqlalchemy as sa

from caraway.errors import ConflictError, InvalidInputError, UnknownEntityError
from caraway.state.asset_store import AssetWriter, balance, copy_references, lock_asset_store
from caraway.state.model import MAIN, Role
from caraway.state.tables import asset_references, branches


class Branches(AssetWriter):
    """Creates, clones and deletes branches.

    All methods raise `UnavailableError` if Postgres doesn't answer; whether the change was made is then unknown.
    """

    def create(self, name: str) -> None:
        """Create an empty branch. Raises `ConflictError` if there is one of this name."""

        def write(connection: sa.Connection) -> None:
            _lock_for_new(connection, name)
            connection.execute(sa.insert(branches).values(name=name, created_at=self._clock()))

        self._in_transaction(write, f"make branch {name}")

    def clone(self, name: str, source: str, checked: Collection[str] | None = None) -> None:
        """Create a branch with the head and the served commit of another branch, and with all of its data.

        Args:
            name: The new branch.
            source: The other branch.
            checked: The ids of the commits that the caller may copy; None allows all.

        Raises:
            ConflictError: There is one of this name, or the other branch has got a commit that isn't in `checked`.
            UnknownEntityError: There is no branch `source`.
        """
        commits = sa.select(branches.c.head, branches.c.serving).where(branches.c.name == source)

        def write(connection: sa.Connection) -> None:
            _lock_for_new(connection, name)
            row = connection.execute(commits).first()
            if row is None:
                raise UnknownEntityError(f"there is no branch {source!r} to clone")
            if checked is not None and not {row.head, row.serving} <= {None, *checked}:
                raise ConflictError(f"branch {source!r} has just got a new commit; clone it again")
            connection.execute(
                sa.insert(branches).values(name=name, head=row.head, serving=row.serving, created_at=self._clock())
            )
            for role in Role:
                copy_references(connection, (source, role), (name, role))

        self._in_transaction(write, f"clone branch {source}")

    def delete(self, name: str) -> None:
        """Delete a branch. Its commits are kept; assets that no other branch needs are destroyed after a while.

        Raises:
            InvalidInputError: The branch is main.
            UnknownEntityError: There is no such branch.
        """
        if name == MAIN:
            raise InvalidInputError(f"branch {MAIN!r} can't be deleted; commit what it shall hold instead")

        def write(connection: sa.Connection) -> None:
            lock_asset_store(connection)
            connection.execute(sa.delete(asset_references).where(asset_references.c.branch == name))
            if connection.execute(sa.delete(branches).where(branches.c.name == name)).rowcount == 0:
                raise UnknownEntityError(f"there is no branch {name!r}")
            balance(connection, self._moment())

        self._in_transaction(write, f"delete branch {name}")


def _lock_for_new(connection: sa.Connection, name: str) -> None:
    """Lock the asset store for the creation of a branch; raise `ConflictError` if there is one of this name."""
    lock_asset_store(connection)
    if connection.execute(sa.select(branches.c.name).where(branches.c.name == name)).first() is not None:
        raise ConflictError(f"there is a branch {name!r} already; choose another name, or check it out")
