"""The asset store in Postgres: reading it, writing an allocation, keeping the ledger in step with the references.

All changes happen inside a transaction that holds the lock of the asset store. So a commit, the creation or deletion of
a branch, or a worker of the ledger never sees half a change of another one. Such a transaction takes milliseconds.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from caraway.graph.plan.model import JobPlan
from caraway.state.allocation import Action, Allocation, Asset, AssetState, settle
from caraway.state.blueprints import FIRST_GENERATION, AssetKind, Blueprint, id_of
from caraway.state.database import TIMEOUT_SECONDS, Store
from caraway.state.model import DesiredState, JobState, Role
from caraway.state.tables import asset_references, assets, branches, commits, jobs, ledger

# The key of the advisory lock in Postgres: any number will do that no other program locks in this database. These are
# the bytes of "assets".
ASSET_STORE_LOCK = int.from_bytes(b"assets")
# An asset that no branch needs any more isn't destroyed for this long, so that a rollback finds it with all its data.
KEEP = timedelta(hours=1)
ASSET_COLUMNS = tuple(assets.c[field.name] for field in fields(Asset))


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a transaction, and how long an asset that no branch needs any more is kept from then on."""

    now: datetime
    keep: timedelta


def wall_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


class AssetWriter(Store):
    """The base of classes that change the asset store: a `Store` that knows the `Moment` of its transactions."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime] = wall_clock,
        keep: timedelta = KEEP,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Work through `engine` (`caraway.state.database.connect`); outages up to `timeout_seconds` are retried.

        An asset that no branch needs any more is kept for `keep`, counted by `clock`.
        """
        super().__init__(engine, timeout_seconds=timeout_seconds)
        self._clock = clock
        self._keep = keep

    def _moment(self) -> Moment:
        return Moment(self._clock(), self._keep)


def lock_asset_store(connection: sa.Connection) -> None:
    """Wait for the lock of the asset store; it is held until the transaction ends."""
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": ASSET_STORE_LOCK})


def read_asset_store(connection: sa.Connection, contents: Collection[str] | None = None) -> tuple[Asset, ...]:
    """Return assets by id: all that were ever created, or those of some contents.

    If `contents` are given, assets of them that are gone are left out, except for the newest asset of each content,
    whose generation decides which one is the next. So a commit reads what it touches, however many assets there were.
    """
    query = sa.select(*ASSET_COLUMNS).order_by(assets.c.id)
    if contents is not None:
        other = assets.alias("other")
        newest = sa.select(sa.func.max(other.c.generation)).where(other.c.content == assets.c.content)
        query = query.where(
            _is_of(contents),
            sa.or_(assets.c.state != AssetState.GONE, assets.c.generation == newest.scalar_subquery()),
        )
    return tuple(_asset(row) for row in connection.execute(query).mappings())


def _asset(row: sa.RowMapping) -> Asset:
    values = {column.name: row[column.name] for column in ASSET_COLUMNS}
    kind, state, requires = AssetKind(values["kind"]), AssetState(values["state"]), tuple(values["requires"])
    return Asset(**{**values, "kind": kind, "state": state, "requires": requires})


def _is_of(contents: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that an asset has one of some contents."""
    return assets.c.content == sa.any_(sa.literal(sorted(contents), ARRAY(sa.Text)))


def read_offered(
    connection: sa.Connection, wanted: Sequence[Blueprint], branch: str, restores: str | None
) -> tuple[frozenset[str], ...]:
    """Return the ids of the assets that a commit with these blueprints may reuse, in groups, preferred ones first.

    A branch keeps its own assets and shares those of the other branches. Only a rollback to the commit `restores` also
    gets assets that no branch needs any more: those that this commit had. Retired assets are never reused.
    """
    groups: dict[str, set[str]] = {"restored": set(), Role.HEAD: set(), Role.SERVING: set(), "others": set()}
    if restores is not None:
        query = sa.select(commits.c.generations).where(commits.c.id == restores)
        generations: Mapping[str, int] = connection.execute(query).scalar_one()
        retired = sa.select(assets.c.id).where(
            _is_of({blueprint.content for blueprint in wanted}), assets.c.retired_at.is_not(None)
        )
        groups["restored"] = {
            id_of(each.kind, each.name, generations.get(each.content, FIRST_GENERATION)) for each in wanted
        } - set(connection.execute(retired).scalars())
    group = sa.case((asset_references.c.branch == branch, asset_references.c.role), else_=sa.literal("others"))
    # An asset that many branches share comes as one row, since the rows are distinct. So the number of rows depends on
    # the commit only, not on the number of branches.
    shared = sa.select(asset_references.c.asset_id, group.label("group")).distinct().join_from(asset_references, assets)
    usable = shared.where(_is_of({blueprint.content for blueprint in wanted}), assets.c.retired_at.is_(None))
    for row in connection.execute(usable):
        groups[row.group].add(row.asset_id)
    return tuple(frozenset(group) for group in groups.values())


def read_references(connection: sa.Connection, ids: Collection[str] | None = None) -> Mapping[str, frozenset[str]]:
    """Return the branches that refer to each asset; `ids` limits this to some assets. Others have no entry."""
    query = sa.select(asset_references.c.asset_id, asset_references.c.branch)
    if ids is not None:
        query = query.where(asset_references.c.asset_id == sa.any_(sa.literal(sorted(ids), ARRAY(sa.Text))))
    found: dict[str, set[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.asset_id, set()).add(row.branch)
    return {asset_id: frozenset(names) for asset_id, names in found.items()}


def enter(connection: sa.Connection, commit_id: str, allocation: Allocation, at: Moment) -> None:
    """Write the new assets of an allocation, and begin to destroy those that it condemns."""
    if allocation.condemned:
        set_state(connection, [asset.id for asset in allocation.condemned], AssetState.DESTROYING, at)
    if allocation.created:
        connection.execute(
            sa.insert(assets),
            [
                {
                    **asdict(asset),
                    "requires": list(asset.requires),
                    "commit_id": commit_id,
                    "created_at": at.now,
                    "updated_at": at.now,
                }
                for asset in allocation.created
            ],
        )


def set_state(connection: sa.Connection, ids: Collection[str], state: AssetState, at: Moment) -> None:
    """Change the state of assets."""
    connection.execute(sa.update(assets).where(assets.c.id.in_(ids)).values(state=state, updated_at=at.now))


def refer(connection: sa.Connection, branch: str, role: Role, ids: Iterable[str]) -> None:
    """Replace the references of a branch in a role by references to exactly these assets."""
    connection.execute(
        sa.delete(asset_references).where(asset_references.c.branch == branch, asset_references.c.role == role)
    )
    rows = [{"branch": branch, "role": role, "asset_id": asset_id} for asset_id in ids]
    if rows:
        connection.execute(sa.insert(asset_references), rows)


def copy_references(connection: sa.Connection, source: tuple[str, Role], target: tuple[str, Role]) -> None:
    """Copy the references of a branch in a role to another branch or role."""
    ids = connection.execute(
        sa.select(asset_references.c.asset_id).where(
            asset_references.c.branch == source[0], asset_references.c.role == source[1]
        )
    ).scalars()
    refer(connection, *target, list(ids))


def waits(connection: sa.Connection, branch: str, wanted: Iterable[Asset]) -> bool:
    """Return whether a branch must go on serving its older commit for now.

    The branch waits if its head (`wanted`) replaces an index of a dataset by one that has not caught up: queries would
    read a dataset that is still being computed. An index of a new dataset replaces none, so nothing waits for it.
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
    """Update ledger and jobs after a change of references: create what is needed, stop and destroy the rest."""
    rows = connection.execute(_unsettled()).mappings().all()
    referenced = {row["id"] for row in rows if row["referenced"]}
    entries = {row["id"]: Action(row["deed"]) for row in rows if row["deed"] is not None}
    settlement = settle([_asset(row) for row in rows], referenced, entries)
    if settlement.cancel:
        connection.execute(
            sa.update(ledger)
            .where(ledger.c.state == "open", ledger.c.asset_id.in_(settlement.cancel))
            .values(state="cancelled", closed_at=at.now)
        )
    if settlement.open:
        retired: set[str] = set(connection.execute(_retired(settlement.open)).scalars())
        connection.execute(
            sa.insert(ledger),
            [
                {
                    "asset_id": asset_id,
                    "deed": action,
                    "state": "open",
                    # An asset that no branch needs is destroyed only after `keep`, since a rollback may want it again.
                    # No rollback can get a retired one.
                    "due_at": at.now + at.keep if action is Action.DESTROY and asset_id not in retired else at.now,
                    "opened_at": at.now,
                }
                for asset_id, action in settlement.open.items()
            ],
        )
    _stop_jobs(connection)


def _retired(ids: Iterable[str]) -> sa.Select[str]:
    return sa.select(assets.c.id).where(
        assets.c.id == sa.any_(sa.literal(sorted(ids), ARRAY(sa.Text))), assets.c.retired_at.is_not(None)
    )


def retire(connection: sa.Connection, ids: Collection[str], at: Moment) -> None:
    """Keep commits from using assets, and have them destroyed as soon as no branch needs them."""
    connection.execute(
        sa.update(assets).where(assets.c.id.in_(ids), assets.c.retired_at.is_(None)).values(retired_at=at.now)
    )
    # Assets that no branch needed before have an open entry for their destruction, which was due after `keep`. It is
    # due now.
    connection.execute(
        sa.update(ledger)
        .where(ledger.c.asset_id.in_(ids), ledger.c.state == "open", ledger.c.deed == Action.DESTROY)
        .values(due_at=sa.func.least(ledger.c.due_at, at.now))
    )


def _unsettled() -> sa.Select[*tuple[Any, ...]]:
    """Return the statement that reads the assets for which `settle` may decide something, with their open entries.

    It leaves out the assets for which `settle` certainly decides nothing, which are nearly all: those that are gone
    (they have no open entry), those that a branch needs and that are ready, and those that no branch needs and whose
    destruction has been entered.
    """
    referenced = sa.exists().where(asset_references.c.asset_id == assets.c.id)
    return (
        sa.select(*ASSET_COLUMNS, referenced.label("referenced"), ledger.c.deed)
        .select_from(assets)
        .outerjoin(ledger, sa.and_(ledger.c.asset_id == assets.c.id, ledger.c.state == "open"))
        .where(
            assets.c.state != AssetState.GONE,
            sa.not_(sa.and_(assets.c.state == AssetState.READY, ledger.c.deed.is_(None), referenced)),
            sa.not_(sa.and_(sa.func.coalesce(ledger.c.deed, "") == Action.DESTROY, ~referenced)),
        )
    )


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
    """Mark the jobs of `plans` as wanted; a job that is running already keeps its reported state."""
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
                    "paused": sa.and_(jobs.c.desired == DesiredState.RUNNING, jobs.c.paused),
                    "updated_at": sa.func.clock_timestamp(),
                },
            )
        )


def serve(connection: sa.Connection, branch: str, commit_id: str | None) -> None:
    """Make a branch serve a commit: its references as head become its references as served."""
    connection.execute(sa.update(branches).where(branches.c.name == branch).values(serving=commit_id))
    copy_references(connection, (branch, Role.HEAD), (branch, Role.SERVING))
