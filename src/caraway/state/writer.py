"""The writing of commits."""

import sqlalchemy as sa

from caraway.errors import ConflictError, UnknownEntityError
from caraway.state import asset_store
from caraway.state.allocation import allocate
from caraway.state.announcements import announce_on_new
from caraway.state.asset_store import AssetWriter, Moment
from caraway.state.blueprints import apply_generations, blueprints
from caraway.state.model import NewCommit, Role
from caraway.state.tables import branches, commits


class StateWriter(AssetWriter):
    """Writes commits for the control plane."""

    def publish(self, commit: NewCommit) -> None:
        """Write a commit with its assets, jobs and ledger entries and move the branch to it, all or nothing.

        Publishing a commit with the same id again changes nothing, so that it can be repeated after a lost connection.

        Raises:
            ConflictError: The branch has moved on from `commit.parent`, or another branch has begun to use an asset.
            UnknownEntityError: There is no such branch.
            UnavailableError: Postgres doesn't answer; whether the commit was made is then unknown; the history shows.
        """
        self._retry(lambda: self._publish(commit), "write the commit")

    def _publish(self, commit: NewCommit) -> None:
        at = self._moment()
        with self._engine.begin() as connection:
            # The lock lasts until the transaction ends, and commits to all branches take it. So a second commit to the
            # same branch waits here; then it finds that the branch's head has moved, and is refused.
            asset_store.lock_asset_store(connection)
            heads = connection.execute(sa.select(branches.c.head).where(branches.c.name == commit.branch)).all()
            if not heads:
                raise UnknownEntityError(f"there is no branch {commit.branch!r}")
            if connection.execute(sa.select(commits.c.id).where(commits.c.id == commit.id)).first() is not None:
                return
            head: str | None = heads[0][0]
            if head != commit.parent:
                raise ConflictError(_who_won(connection, commit.branch, head))
            write_commit(connection, commit, at)


def write_commit(connection: sa.Connection, commit: NewCommit, at: Moment) -> None:
    """Write a commit with all that it needs and move its branch to it, in a transaction with the asset store's lock."""
    connection.execute(
        sa.insert(commits).values(
            id=commit.id,
            branch=commit.branch,
            parent=commit.parent,
            message=commit.message,
            author=commit.author,
            created_at=at.now,
            graph=commit.graph,
            fingerprint=commit.fingerprint,
            summary=list(commit.summary),
        )
    )
    connection.execute(sa.update(branches).where(branches.c.name == commit.branch).values(head=commit.id))
    _provide(connection, commit, at)


def _provide(connection: sa.Connection, commit: NewCommit, at: Moment) -> None:
    """Refer to all assets that a commit needs; enter missing and unneeded ones into the ledger."""
    wanted = blueprints(commit.plan)
    existing = asset_store.read_asset_store(connection, {blueprint.content for blueprint in wanted})
    offered = asset_store.read_offered(connection, wanted, commit.branch, commit.restores)
    allocation = allocate(wanted, existing, offered)
    if commit.shares is not None:
        references = asset_store.read_references(connection, [asset.id for asset in allocation.assets])
        if not commit.shares.issuperset(allocation.shared(commit.branch, references)):
            raise ConflictError(
                "another branch has begun to use the same topics, jobs or indexes while this commit was being "
                "prepared. Nothing of this commit was applied; commit again, so that it is checked whether you may "
                "share them"
            )
    if allocation.generations:
        connection.execute(
            sa.update(commits).where(commits.c.id == commit.id).values(generations=dict(allocation.generations))
        )
    asset_store.enter(connection, commit.id, allocation, at)
    asset_store.refer(connection, commit.branch, Role.HEAD, [asset.id for asset in allocation.assets])
    if not asset_store.waits(connection, commit.branch, allocation.assets):
        asset_store.serve(connection, commit.branch, commit.id)
    plan = apply_generations(commit.plan, allocation.generations)
    asset_store.want_jobs(connection, commit.id, plan.jobs)
    announce_on_new(connection, plan, allocation.created_names)
    asset_store.balance(connection, at)


def _who_won(connection: sa.Connection, branch: str, head: str | None) -> str:
    if head is None:
        return f"branch {branch!r} has been emptied since this commit was prepared; commit again"
    won = connection.execute(
        sa.select(commits.c.message, commits.c.author, commits.c.created_at).where(commits.c.id == head)
    ).one()
    author = f" by {won.author}" if won.author else ""
    return (
        f"branch {branch!r} has moved on: commit {head} ({won.message!r}{author}, {won.created_at:%Y-%m-%d %H:%M:%S} "
        "UTC) was made while this one was being prepared. Nothing of this commit was applied; look at the other one "
        "and commit again."
    )
