"""The asset store in Postgres: reading it, writing an allocation, keeping the ledger in step with the references.

All of it happens inside a transaction that holds the lock of the asset store, so that commits on different branches,
branches that come and go, and workers of the ledger see each other's changes whole. Such a transaction takes
milliseconds.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.plan.model import JobPlan
from caraway.state.allocation import Action, Allocation, Asset, AssetState, settle
from caraway.state.blueprints import AssetKind
from caraway.state.model import DesiredState, JobState, Role
from caraway.state.tables import asset_references, assets, branches, jobs, ledger

# Any constant that no other program uses in this database; these are the bytes of "assets".
ASSET_STORE_LOCK = int.from_bytes(b"assets")

_ASSET_COLUMNS = (
    assets.c.id,
    assets.c.kind,
    assets.c.content,
    assets.c.generation,
    assets.c.dataset,
    assets.c.state,
    assets.c.requires,
)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a transaction happens, and how long what nobody needs is kept from then on."""

    now: datetime
    keep: timedelta


def lock_asset_store(connection: sa.Connection) -> None:
    """Wait for the lock of the asset store; it is held until the transaction ends."""
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": ASSET_STORE_LOCK})


def read_asset_store(connection: sa.Connection) -> tuple[Asset, ...]:
    """Return all assets that there ever were."""
    return tuple(
        Asset(
            id=row["id"],
            kind=AssetKind(row["kind"]),
            content=row["content"],
            generation=row["generation"],
            dataset=row["dataset"],
            state=AssetState(row["state"]),
            requires=tuple(row["requires"]),
        )
        for row in connection.execute(sa.select(*_ASSET_COLUMNS).order_by(assets.c.id)).mappings()
    )


def enter(connection: sa.Connection, commit_id: str, allocation: Allocation, at: Moment) -> None:
    """Write the new assets of an allocation, and begin to destroy those that can't be used again."""
    if allocation.condemned:
        set_state(connection, [asset.id for asset in allocation.condemned], AssetState.DESTROYING, at)
    if allocation.created:
        connection.execute(
            sa.insert(assets),
            [
                {
                    "id": asset.id,
                    "kind": asset.kind,
                    "content": asset.content,
                    "generation": asset.generation,
                    "dataset": asset.dataset,
                    "state": asset.state,
                    "requires": list(asset.requires),
                    "commit_id": commit_id,
                    "created_at": at.now,
                    "updated_at": at.now,
                }
                for asset in allocation.created
            ],
        )


def set_state(connection: sa.Connection, ids: Collection[str], state: AssetState, at: Moment) -> None:
    """Put assets into a state."""
    connection.execute(sa.update(assets).where(assets.c.id.in_(ids)).values(state=state, updated_at=at.now))


def refer(connection: sa.Connection, branch: str, role: Role, ids: Iterable[str]) -> None:
    """Let a branch refer to exactly these assets in a role."""
    connection.execute(
        sa.delete(asset_references).where(asset_references.c.branch == branch, asset_references.c.role == role)
    )
    rows = [{"branch": branch, "role": role, "asset_id": asset_id} for asset_id in ids]
    if rows:
        connection.execute(sa.insert(asset_references), rows)


def copy_references(connection: sa.Connection, source: tuple[str, Role], target: tuple[str, Role]) -> None:
    """Let a branch refer in a role to what a branch refers to in one."""
    ids = connection.execute(
        sa.select(asset_references.c.asset_id).where(
            asset_references.c.branch == source[0], asset_references.c.role == source[1]
        )
    ).scalars()
    refer(connection, *target, list(ids))


def waits(connection: sa.Connection, branch: str, wanted: Iterable[Asset]) -> bool:
    """Return whether a branch must go on serving its older commit.

    It must when an index takes the place of another one of the same dataset and hasn't caught up yet: queries would be
    answered from a dataset that is still being computed. What is only added has nothing to wait for.
    """
    served: dict[str, set[str]] = {}
    rows = connection.execute(
        sa.select(assets.c.dataset, assets.c.id)
        .join_from(asset_references, assets)
        .where(
            asset_references.c.branch == branch,
            asset_references.c.role == Role.SERVING,
            assets.c.kind == AssetKind.INDEX,
        )
    )
    for dataset, asset_id in rows:
        served.setdefault(dataset, set()).add(asset_id)
    return any(
        asset.kind is AssetKind.INDEX
        and asset.state is not AssetState.READY
        and asset.id not in served.get(asset.dataset, {asset.id})
        for asset in wanted
    )


def balance(connection: sa.Connection, at: Moment) -> None:
    """Bring ledger and jobs in step with the references: what is needed is made, the rest stops and goes."""
    referenced = set(connection.execute(sa.select(asset_references.c.asset_id).distinct()).scalars())
    entries = {
        row.asset_id: Action(row.deed)
        for row in connection.execute(sa.select(ledger.c.asset_id, ledger.c.deed).where(ledger.c.state == "open"))
    }
    settlement = settle(read_asset_store(connection), referenced, entries)
    if settlement.cancel:
        connection.execute(
            sa.update(ledger)
            .where(ledger.c.state == "open", ledger.c.asset_id.in_(settlement.cancel))
            .values(state="cancelled", closed_at=at.now)
        )
    if settlement.open:
        connection.execute(
            sa.insert(ledger),
            [
                {
                    "asset_id": asset_id,
                    "deed": action,
                    "state": "open",
                    # What nobody needs is kept for a while: a rollback, or another branch, may want it again.
                    "due_at": at.now + at.keep if action is Action.DESTROY else at.now,
                    "opened_at": at.now,
                }
                for asset_id, action in settlement.open.items()
            ],
        )
    _stop_jobs(connection)


def _stop_jobs(connection: sa.Connection) -> None:
    """Stop the jobs that no branch refers to."""
    needed = sa.select(asset_references.c.asset_id).where(
        asset_references.c.asset_id == sa.literal(f"{AssetKind.JOB}:") + jobs.c.job_id
    )
    connection.execute(
        sa.update(jobs)
        .where(jobs.c.desired == DesiredState.RUNNING, ~needed.exists())
        .values(desired=DesiredState.STOPPED, updated_at=sa.func.clock_timestamp())
    )


def want_jobs(connection: sa.Connection, commit_id: str, plans: Iterable[JobPlan]) -> None:
    """Let `plans` be wanted; what engines have said of a job that goes on stays."""
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


def serve(connection: sa.Connection, branch: str, commit_id: str | None) -> None:
    """Let a branch serve a commit, with all that it refers to as its head."""
    connection.execute(sa.update(branches).where(branches.c.name == branch).values(serving=commit_id))
    copy_references(connection, (branch, Role.HEAD), (branch, Role.SERVING))
