"""The reading of the state."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from caraway.errors import UnknownEntityError
from caraway.state.allocation import Asset
from caraway.state.asset_store import read_asset_store, read_offered, read_references
from caraway.state.blueprints import AssetKind, Blueprint
from caraway.state.database import TIMEOUT_SECONDS, Store
from caraway.state.model import (
    MAIN,
    BranchHeads,
    BranchRecord,
    CommitRecord,
    DesiredState,
    Head,
    JobRecord,
    JobState,
    LeaseRecord,
    LedgerEntry,
)
from caraway.state.tables import assets, branches, commits, jobs, leases, ledger

COMMIT_COLUMNS = [column for column in commits.c if column.name not in {"graph", "generations"}]


class StateReader(Store):
    """Reads commits, branches, assets, jobs and the ledger. Postgres enforces that the transactions are read-only."""

    def __init__(self, engine: sa.Engine, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Read through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried."""
        super().__init__(engine.execution_options(postgresql_readonly=True), timeout_seconds=timeout_seconds)

    def head_id(self, branch: str = MAIN) -> str | None:
        """Return the id of a branch's newest commit, None before the first: cheap enough to be polled.

        Raises `UnknownEntityError` if there is no such branch.
        """
        query = sa.select(branches.c.head).where(branches.c.name == branch)
        head: str | None = self._row(query, f"read branch {branch}", f"there is no branch {branch!r}")["head"]
        return head

    def head(self, branch: str = MAIN) -> Head:
        """Return a branch's newest commit and its graph. Raises `UnknownEntityError` if there is no such branch."""
        query = (
            sa.select(branches.c.head, commits.c.graph, commits.c.generations)
            .join_from(branches, commits, branches.c.head == commits.c.id, isouter=True)
            .where(branches.c.name == branch)
        )
        row = self._row(query, f"read branch {branch}", f"there is no branch {branch!r}")
        return Head(
            branch=branch, commit_id=row["head"], graph=row["graph"] or b"", generations=row["generations"] or {}
        )

    def commit_id(self, name: str) -> str:
        """Return the id of the commit that is the head of a branch, or the only one whose id begins with a text.

        Raises `UnknownEntityError` if there is none, or if several begin so.
        """
        heads = self._rows(sa.select(branches.c.head).where(branches.c.name == name), f"read branch {name}")
        if heads and heads[0]["head"] is None:
            raise UnknownEntityError(f"branch {name!r} has no commit yet")
        found = [head["head"] for head in heads]
        if not found and re.fullmatch(r"[0-9a-f]{4,32}", name):
            query = sa.select(commits.c.id).where(commits.c.id.startswith(name)).limit(2)
            found = [row["id"] for row in self._rows(query, "read a commit")]
        if len(found) > 1:
            raise UnknownEntityError(f"several commits begin with {name}, such as {' and '.join(found)}")
        if not found:
            raise UnknownEntityError(
                f"there is no commit {name[:100]!r}: give a branch, or an id or its first 4 characters or more, as "
                "`caraway history` (GET /branch/log) shows it"
            )
        return str(found[0])

    def commit(self, commit_id: str) -> CommitRecord:
        """Return a commit. Raises `UnknownEntityError` if there is no such commit."""
        query = sa.select(*COMMIT_COLUMNS).where(commits.c.id == commit_id)
        return _commit_record(self._row(query, "read a commit", f"there is no commit {commit_id!r}"))

    def history(self, branch: str = MAIN, *, limit: int = 50) -> tuple[CommitRecord, ...]:
        """Return a branch's newest commits, newest first; a clone's include those that it began with.

        Raises `UnknownEntityError` if there is no such branch.
        """
        head = self.head_id(branch)
        line = sa.select(commits.c.id, commits.c.parent, sa.literal(1).label("distance")).where(commits.c.id == head)
        path = line.cte("path", recursive=True)
        path = path.union_all(
            sa.select(commits.c.id, commits.c.parent, path.c.distance + 1)
            .join_from(path, commits, commits.c.id == path.c.parent)
            .where(path.c.distance < limit)
        )
        query = sa.select(*COMMIT_COLUMNS).join(path, path.c.id == commits.c.id).order_by(path.c.distance)
        return tuple(_commit_record(row) for row in self._rows(query, "read the history"))

    def past_topics(self, branch: str = MAIN) -> frozenset[str]:
        """Return the topics that commits in a branch's history created, even if they are gone; a clone's are included.

        Raises `UnknownEntityError` if there is no such branch.
        """
        head = self.head_id(branch)
        path = sa.select(commits.c.id, commits.c.parent).where(commits.c.id == head).cte("path", recursive=True)
        path = path.union(sa.select(commits.c.id, commits.c.parent).join(path, commits.c.id == path.c.parent))
        query = sa.select(assets.c.id).join(path, path.c.id == assets.c.commit_id)
        rows = self._rows(query.where(assets.c.kind == AssetKind.TOPIC), "read the topics of the history")
        return frozenset(row["id"].partition(":")[2] for row in rows)

    def graph(self, commit_id: str) -> bytes:
        """Return the graph of a commit, as protobuf. Raises `UnknownEntityError` if there is no such commit."""
        query = sa.select(commits.c.graph).where(commits.c.id == commit_id)
        graph: bytes = self._row(query, "read a commit", f"there is no commit {commit_id!r}")["graph"]
        return graph

    def generations(self, commit_id: str) -> Mapping[str, int]:
        """Return the generation of each content of a commit's assets, if it isn't the first; they never change.

        Raises `UnknownEntityError` if there is no such commit.
        """
        query = sa.select(commits.c.generations).where(commits.c.id == commit_id)
        found: Mapping[str, int] = self._row(query, "read a commit", f"there is no commit {commit_id!r}")["generations"]
        return found

    def branch_of(self, commit_id: str) -> str:
        """Return the branch on which a commit was made. Raises `UnknownEntityError` if there is no such commit."""
        query = sa.select(commits.c.branch).where(commits.c.id == commit_id)
        return str(self._row(query, "read a commit", f"there is no commit {commit_id!r}")["branch"])

    def branch_heads(self) -> BranchHeads:
        """Return all branches: cheap enough to be polled."""
        rows = self._rows(sa.select(branches).order_by(branches.c.name), "read the branches")
        return BranchHeads(branches=tuple(BranchRecord(**row) for row in rows))

    def assets(self, contents: Collection[str] | None = None) -> tuple[Asset, ...]:
        """Return all assets ever created, or those of some contents (`caraway.state.asset_store.read_asset_store`)."""
        return self._in_transaction(lambda connection: read_asset_store(connection, contents), "read the assets")

    def offered(self, wanted: Sequence[Blueprint], branch: str, restores: str | None) -> tuple[frozenset[str], ...]:
        """Return the ids of the assets that a commit may reuse (`caraway.state.asset_store.read_offered`)."""
        return self._in_transaction(
            lambda connection: read_offered(connection, wanted, branch, restores), "read the references"
        )

    def references(self, ids: Collection[str] | None = None) -> Mapping[str, frozenset[str]]:
        """Return, for each asset that is needed, of all or of some, the branches that refer to it."""
        return self._in_transaction(lambda connection: read_references(connection, ids), "read the references")

    def ledger(self, *, closed: int = 0) -> tuple[LedgerEntry, ...]:
        """Return the open entries of the ledger by due time, and the last `closed` entries that were closed."""
        own = ("id", "asset_id", "state", "reason", "attempts", "due_at", "opened_at", "closed_at")
        columns = [*(ledger.c[name] for name in own), ledger.c.deed.label("action")]
        every = sa.select(*columns, assets.c.state.label("asset_state"), assets.c.dataset).join_from(ledger, assets)
        pending = every.where(ledger.c.state == "open").order_by(ledger.c.due_at, ledger.c.id)
        over = every.where(ledger.c.state != "open").order_by(ledger.c.closed_at.desc(), ledger.c.id.desc())
        rows = self._rows(pending, "read the ledger")
        if closed:
            rows += self._rows(over.limit(closed), "read the ledger")
        return tuple(LedgerEntry(**row) for row in rows)

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return all jobs ever created, by id."""
        query = sa.select(jobs).order_by(jobs.c.job_id)
        return tuple(_job_record(row) for row in self._rows(query, "read the jobs"))

    def running_jobs(self) -> tuple[JobRecord, ...]:
        """Return the jobs that must run and do, by id."""
        running = sa.and_(jobs.c.desired == DesiredState.RUNNING, jobs.c.state == JobState.RUNNING)
        query = sa.select(jobs).where(running).order_by(jobs.c.job_id)
        return tuple(_job_record(row) for row in self._rows(query, "read the running jobs"))

    def leases(self, prefix: str) -> tuple[LeaseRecord, ...]:
        """Return the leases whose names begin with a text, by name; those of processes that have ended are included."""
        alive = (leases.c.expires_at > sa.func.clock_timestamp()).label("alive")
        query = sa.select(leases.c.name, leases.c.holder.label("owner"), leases.c.expires_at, alive)
        query = query.where(leases.c.name.startswith(prefix, autoescape=True)).order_by(leases.c.name)
        return tuple(LeaseRecord(**row) for row in self._rows(query, "read the leases"))

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job, None if there is none of this id."""
        rows = self._rows(sa.select(jobs).where(jobs.c.job_id == job_id), "read a job")
        return _job_record(rows[0]) if rows else None

    def _row(self, query: sa.Select[*tuple[Any, ...]], what: str, missing: str) -> dict[str, Any]:
        rows = self._rows(query, what)
        if not rows:
            raise UnknownEntityError(missing)
        return rows[0]

    def _rows(self, query: sa.Select[*tuple[Any, ...]], what: str) -> list[dict[str, Any]]:
        def read(connection: sa.Connection) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(query).mappings()]

        return self._in_transaction(read, what)


def _commit_record(row: Mapping[str, Any]) -> CommitRecord:
    return CommitRecord(**{**row, "summary": tuple(row["summary"])})


def _job_record(row: Mapping[str, Any]) -> JobRecord:
    return JobRecord(**{**row, "desired": DesiredState(row["desired"]), "state": JobState(row["state"])})
