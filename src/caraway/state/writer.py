"""Changes of the state."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import sqlalchemy as sa

from caraway.errors import ConflictError, UnknownEntityError
from caraway.state.allocation import allocate
from caraway.state.asset_store import (
    Moment,
    balance,
    enter,
    lock_asset_store,
    read_asset_store,
    refer,
    serve,
    waits,
    want_jobs,
)
from caraway.state.blueprints import apply_generations, blueprints
from caraway.state.clock import KEEP, wall_clock
from caraway.state.database import TIMEOUT_SECONDS, in_transaction, retry_outages
from caraway.state.model import JobState, NewCommit, Role
from caraway.state.tables import branches, commits, jobs


class StateWriter:
    """Writes commits for the control plane, and reports for engines."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], datetime] = wall_clock,
        keep: timedelta = KEEP,
    ) -> None:
        """Write through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried.

        An asset that no branch needs any more is kept for `keep`, counted by `clock`.
        """
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._keep = keep
        self._engine = engine

    def publish(self, commit: NewCommit) -> None:
        """Write a commit with its assets, jobs and ledger entries and move the branch to it, all or nothing.

        Publishing the same commit (by its id) again changes nothing, so a connection lost in the middle is harmless.

        Raises:
            ConflictError: The branch has moved on from `commit.parent`.
            UnknownEntityError: There is no such branch.
            UnavailableError: Postgres doesn't answer; whether the commit was made is then unknown; the history shows.
        """
        retry_outages(lambda: self._publish(commit), what="write the commit", timeout_seconds=self._timeout_seconds)

    def report(
        self, job_id: str, *, state: JobState, mode: str, attempts: int, error: str, progress: Mapping[str, object]
    ) -> None:
        """Write what an engine reports of a job; a report of an unknown job is ignored."""
        statement = (
            sa.update(jobs)
            .where(jobs.c.job_id == job_id)
            .values(
                state=state,
                mode=mode,
                attempts=attempts,
                error=error,
                progress=dict(progress),
                updated_at=sa.func.clock_timestamp(),
            )
        )

        what = f"report on job {job_id}"
        in_transaction(self._engine, lambda it: it.execute(statement), what=what, timeout_seconds=self._timeout_seconds)

    def _publish(self, commit: NewCommit) -> None:
        at = Moment(self._clock(), self._keep)
        with self._engine.begin() as connection:
            # The lock lasts until the transaction ends, so a concurrent commit waits here, and then finds that the head
            # has moved.
            lock_asset_store(connection)
            heads = connection.execute(sa.select(branches.c.head).where(branches.c.name == commit.branch)).all()
            if not heads:
                raise UnknownEntityError(f"there is no branch {commit.branch!r}")
            if connection.execute(sa.select(commits.c.id).where(commits.c.id == commit.id)).first() is not None:
                return
            head: str | None = heads[0][0]
            if head != commit.parent:
                raise ConflictError(_who_won(connection, commit.branch, head))
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
    allocation = allocate(blueprints(commit.plan), read_asset_store(connection))
    enter(connection, commit.id, allocation, at)
    refer(connection, commit.branch, Role.HEAD, [asset.id for asset in allocation.assets])
    if not waits(connection, commit.branch, allocation.assets):
        serve(connection, commit.branch, commit.id)
    want_jobs(connection, commit.id, apply_generations(commit.plan, allocation.generations).jobs)
    balance(connection, at)


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
