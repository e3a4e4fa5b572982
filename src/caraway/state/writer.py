"""Changing the state."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import ConflictError, UnknownEntityError
from caraway.plan.model import JobPlan
from caraway.state.database import PATIENCE_SECONDS, patiently
from caraway.state.model import DesiredState, JobState, NewCommit
from caraway.state.tables import branches, commits, jobs


class StateWriter:
    """The write side: commits by the control plane, reports by engines."""

    def __init__(self, engine: sa.Engine, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Write through `engine` (`caraway.state.connect`); an outage of `patience_seconds` goes unnoticed."""
        self._patience_seconds = patience_seconds
        self._engine = engine

    def publish(self, commit: NewCommit) -> None:
        """Write a commit with its jobs and move the branch to it, all or nothing.

        Publishing the same commit (by its id) again changes nothing, so a connection lost in the middle is harmless.

        Raises:
            ConflictError: The branch has moved on from `commit.parent`.
            UnknownEntityError: There is no such branch.
            UnavailableError: Postgres doesn't answer; whether the commit was made is then unknown, the history tells.
        """
        patiently(lambda: self._publish(commit), what="write the commit", patience_seconds=self._patience_seconds)

    def report(
        self, job_id: str, *, state: JobState, mode: str, attempts: int, error: str, progress: Mapping[str, object]
    ) -> None:
        """Note what an engine says of a job; a job that is unknown is passed over.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
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

        def write() -> None:
            with self._engine.begin() as connection:
                connection.execute(statement)

        patiently(write, what=f"report on job {job_id}", patience_seconds=self._patience_seconds)

    def _publish(self, commit: NewCommit) -> None:
        with self._engine.begin() as connection:
            # The row lock makes compare-and-set of the head one step: a second commit waits here for the first.
            heads = connection.execute(
                sa.select(branches.c.head).where(branches.c.name == commit.branch).with_for_update()
            ).all()
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
                    graph=commit.graph,
                    fingerprint=commit.fingerprint,
                    summary=list(commit.summary),
                )
            )
            _want_jobs(connection, commit.id, commit.jobs)
            connection.execute(sa.update(branches).where(branches.c.name == commit.branch).values(head=commit.id))


def _want_jobs(connection: sa.Connection, commit_id: str, plans: tuple[JobPlan, ...]) -> None:
    """Let exactly `plans` be wanted; what engines have said of a job that goes on stays."""
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.job_id.not_in([plan.job_id for plan in plans]), jobs.c.desired == DesiredState.RUNNING)
        .values(desired=DesiredState.STOPPED, updated_at=sa.func.clock_timestamp())
    )
    for plan in plans:
        wanted = {
            "commit_id": commit_id,
            "dataset": plan.dataset,
            "pipeline": plan.pipeline,
            "mode": plan.mode,
            "mode_reason": plan.mode_reason,
            "desired": DesiredState.RUNNING,
        }
        statement = insert(jobs).values(job_id=plan.job_id, state=JobState.PENDING, **wanted)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[jobs.c.job_id],
                set_={
                    **wanted,
                    "state": sa.case((jobs.c.desired == DesiredState.STOPPED, JobState.PENDING), else_=jobs.c.state),
                    "error": sa.case((jobs.c.desired == DesiredState.STOPPED, ""), else_=jobs.c.error),
                    "updated_at": sa.func.clock_timestamp(),
                },
            )
        )


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
