"""Reading the state; nothing here can change it."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from caraway.errors import UnknownEntityError
from caraway.state.database import PATIENCE_SECONDS, patiently
from caraway.state.model import MAIN, CommitRecord, DesiredState, Head, JobRecord, JobState
from caraway.state.tables import branches, commits, jobs

COMMIT_COLUMNS = [column for column in commits.c if column is not commits.c.graph]


class StateReader:
    """The read side. Every transaction is read-only in Postgres too."""

    def __init__(self, engine: sa.Engine, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Read through `engine` (`caraway.state.connect`); an outage of `patience_seconds` goes unnoticed."""
        self._patience_seconds = patience_seconds
        self._engine = engine.execution_options(postgresql_readonly=True)

    def head_id(self, branch: str = MAIN) -> str | None:
        """Give the id of a branch's newest commit, None before the first: cheap enough to be polled.

        Raises:
            UnknownEntityError: There is no such branch.
        """
        rows = self._rows(sa.select(branches.c.head).where(branches.c.name == branch), what=f"read branch {branch}")
        if not rows:
            raise UnknownEntityError(f"there is no branch {branch!r}")
        head: str | None = rows[0]["head"]
        return head

    def head(self, branch: str = MAIN) -> Head:
        """Give a branch's newest commit and its graph.

        Raises:
            UnknownEntityError: There is no such branch.
        """
        query = (
            sa.select(branches.c.head, commits.c.graph)
            .join_from(branches, commits, branches.c.head == commits.c.id, isouter=True)
            .where(branches.c.name == branch)
        )
        rows = self._rows(query, what=f"read branch {branch}")
        if not rows:
            raise UnknownEntityError(f"there is no branch {branch!r}")
        return Head(branch=branch, commit_id=rows[0]["head"], graph=rows[0]["graph"] or b"")

    def commit(self, commit_id: str) -> CommitRecord:
        """Give a commit.

        Raises:
            UnknownEntityError: There is no such commit.
        """
        rows = self._rows(sa.select(*COMMIT_COLUMNS).where(commits.c.id == commit_id), what="read a commit")
        if not rows:
            raise UnknownEntityError(f"there is no commit {commit_id!r}")
        return _commit_record(rows[0])

    def history(self, branch: str = MAIN, *, limit: int = 50) -> tuple[CommitRecord, ...]:
        """Give a branch's newest commits, newest first."""
        query = (
            sa.select(*COMMIT_COLUMNS)
            .where(commits.c.branch == branch)
            .order_by(commits.c.created_at.desc(), commits.c.id)
            .limit(limit)
        )
        return tuple(_commit_record(row) for row in self._rows(query, what="read the history"))

    def jobs(self) -> tuple[JobRecord, ...]:
        """Give all jobs that there ever were, by id."""
        query = sa.select(jobs).order_by(jobs.c.job_id)
        return tuple(_job_record(row) for row in self._rows(query, what="read the jobs"))

    def _rows(self, query: sa.Select[*tuple[Any, ...]], *, what: str) -> list[Mapping[str, Any]]:
        def read() -> list[Mapping[str, Any]]:
            with self._engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]

        return patiently(read, what=what, patience_seconds=self._patience_seconds)


def _commit_record(row: Mapping[str, Any]) -> CommitRecord:
    return CommitRecord(**{**row, "summary": tuple(row["summary"])})


def _job_record(row: Mapping[str, Any]) -> JobRecord:
    return JobRecord(**{**row, "desired": DesiredState(row["desired"]), "state": JobState(row["state"])})
