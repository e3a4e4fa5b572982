"""Working off the ledger, the list in Postgres of assets (topics, jobs, indexes) that have to be made or destroyed.

A worker claims an entry, does its action, and reports the outcome.

A claim is a lease with a token that grows. A worker that lost its claim (by a crash or a pause) can't report on it, and
an action that it still finishes is harmless: actions are idempotent, and a destroyed name is never used again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array

from caraway.state.allocation import Action, AssetState
from caraway.state.asset_store import AssetWriter, Moment, balance, lock_asset_store, serve, set_state
from caraway.state.blueprints import AssetKind
from caraway.state.model import Role
from caraway.state.tables import asset_references, assets, branches, ledger

# How long a worker's claim of an entry excludes other workers. Nearly all actions take much less. After this time, the
# worker is regarded as dead or hanging, and another worker takes over.
LEASE = timedelta(seconds=30)
# The pause before the next attempt at an action that isn't done because an engine or an index is still catching up.
PAUSE = timedelta(milliseconds=250)
# A failing action is retried after half a second, then after twice the time before, at most a minute.
FIRST_BACKOFF = timedelta(milliseconds=500)
LAST_BACKOFF = timedelta(seconds=60)
#: The condition that a branch doesn't serve its head yet.
BEHIND = branches.c.head.is_distinct_from(branches.c.serving)


class ActionOutcome(StrEnum):
    """The outcome of an attempt at an action."""

    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An entry that a worker works on, valid until `until`."""

    entry: int
    token: int
    action: Action
    asset_id: str
    kind: AssetKind
    attempts: int
    until: datetime

    @property
    def name(self) -> str:
        """The name of the topic, job or index."""
        return self.asset_id.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Closed:
    """The outcome of the action of a claim, and the reason why it isn't done."""

    claim: Claim
    outcome: ActionOutcome
    reason: str = ""


class Ledger(AssetWriter):
    """The open entries, for workers; any number of workers, in any number of processes, may work at once."""

    def expects(self, within: timedelta) -> bool:
        """Return whether an entry is due within some time, or a branch doesn't serve its head."""
        due = sa.exists().where(ledger.c.state == "open", ledger.c.due_at <= self._clock() + within)
        query = sa.select(sa.or_(due, sa.exists().where(BEHIND)))

        def read(connection: sa.Connection) -> bool:
            return connection.execute(query).scalar_one()

        return self._in_transaction(read, "look into the ledger")

    def claim(self) -> Claim | None:
        """Claim an entry that is due and whose asset is blocked by no other asset; None if there is none."""
        return next(iter(self.claims(1)), None)

    def claims(self, most: int) -> tuple[Claim, ...]:
        """Claim at most `most` entries with the same action on the same kind of asset, as `claim` does one."""
        return self._retry(lambda: self._claims(most), "look into the ledger")

    def close(self, claim: Claim, outcome: ActionOutcome, reason: str = "") -> bool:
        """Write the outcome of an action; return False, and change nothing, if the claim was lost meanwhile."""
        return not self.close_all([Closed(claim, outcome, reason)])

    def close_all(self, closed: Sequence[Closed]) -> tuple[Claim, ...]:
        """Write the outcomes of actions; return the claims that were lost meanwhile, for which nothing changes."""
        return self._retry(lambda: self._close_all(closed), "write into the ledger")

    def promote(self) -> tuple[str, ...]:
        """Switch every branch whose head is ready to its head, and return the names of these branches."""
        return self._retry(self._promote, "promote branches")

    def gone(self, kind: AssetKind) -> frozenset[str]:
        """Return the names of assets that are gone. No asset gets such a name again, so leftovers can be removed."""
        query = sa.select(assets.c.id).where(assets.c.kind == kind, assets.c.state == AssetState.GONE)

        def read(connection: sa.Connection) -> frozenset[str]:
            return frozenset(name.partition(":")[2] for name in connection.execute(query).scalars())

        return self._in_transaction(read, "read the assets")

    def _claims(self, most: int) -> tuple[Claim, ...]:
        at = self._moment()
        other = assets.alias("other")
        # Assets are created after those that they require, and destroyed before them. So a required asset that isn't
        # ready (`below`) puts off a creation, and a requiring asset that isn't gone (`above`) puts off a destruction.
        below = sa.select(other.c.id).where(other.c.id == sa.any_(assets.c.requires), other.c.state != AssetState.READY)
        # The condition is `contains`, since the index `assets_requires` can find the requiring assets by it.
        requiring = other.c.requires.contains(array([assets.c.id]))
        above = sa.select(other.c.id).where(requiring, other.c.state != AssetState.GONE)
        query = (
            sa.select(ledger.c.id, ledger.c.deed, ledger.c.asset_id, ledger.c.attempts, ledger.c.token, assets.c.kind)
            .join_from(ledger, assets)
            .where(
                ledger.c.state == "open",
                ledger.c.due_at <= at.now,
                sa.or_(ledger.c.leased_until.is_(None), ledger.c.leased_until <= at.now),
                sa.or_(
                    sa.and_(ledger.c.deed == Action.CREATE, ~below.exists()),
                    sa.and_(ledger.c.deed == Action.DESTROY, ~above.exists()),
                ),
            )
            .order_by(ledger.c.due_at, ledger.c.id)
            .limit(most)
        )
        with self._engine.connect() as connection:
            # Nearly always no entry is due, and this query finds that out without taking the lock of the asset store,
            # for which commits would have to wait.
            if connection.execute(query).first() is None:
                return ()
        with self._engine.begin() as connection:
            lock_asset_store(connection)
            due = connection.execute(query).all()
            kinds = [(row.deed, row.kind) for row in due]
            rows = [row for row, kind in zip(due, kinds, strict=True) if kind == kinds[0]]
            if not rows:
                return ()
            until = at.now + LEASE
            entries, names = [row.id for row in rows], [row.asset_id for row in rows]
            connection.execute(
                sa.update(ledger).where(ledger.c.id.in_(entries)).values(token=ledger.c.token + 1, leased_until=until)
            )
            if kinds[0][0] == Action.DESTROY:
                set_state(connection, names, AssetState.DESTROYING, at)
            else:
                connection.execute(
                    sa.update(assets)
                    .where(assets.c.id.in_(names), assets.c.state == AssetState.PLANNED)
                    .values(state=AssetState.CREATING, updated_at=at.now)
                )
            return tuple(
                Claim(
                    entry=row.id,
                    token=row.token + 1,
                    action=Action(row.deed),
                    asset_id=row.asset_id,
                    kind=AssetKind(row.kind),
                    attempts=row.attempts,
                    until=until,
                )
                for row in rows
            )

    def _close_all(self, closed: Sequence[Closed]) -> tuple[Claim, ...]:
        at = self._moment()
        with self._engine.begin() as connection:
            lock_asset_store(connection)
            return tuple(item.claim for item in closed if not _close(connection, item, at))

    def _promote(self) -> tuple[str, ...]:
        behind = sa.select(branches.c.name, branches.c.head).where(BEHIND)
        unready = (
            sa.select(asset_references.c.branch)
            .join_from(asset_references, assets)
            .where(
                asset_references.c.branch == branches.c.name,
                asset_references.c.role == Role.HEAD,
                assets.c.state != AssetState.READY,
            )
        )
        query = behind.where(~unready.exists()).order_by(branches.c.name)
        with self._engine.connect() as connection:
            if connection.execute(query).first() is None:
                return ()
        at = self._moment()
        with self._engine.begin() as connection:
            lock_asset_store(connection)
            ready = connection.execute(query).all()
            for name, head in ready:
                serve(connection, name, head)
            balance(connection, at)
            return tuple(name for name, _ in ready)


def backoff(attempts: int) -> timedelta:
    """Return how long to wait before the next attempt, after a number of attempts that failed."""
    doublings = min(attempts, (LAST_BACKOFF // FIRST_BACKOFF).bit_length())
    return min(FIRST_BACKOFF * (1 << doublings), LAST_BACKOFF)


def _close(connection: sa.Connection, closed: Closed, at: Moment) -> bool:
    """Write the outcome of an action; return whether its claim is still held."""
    claim = closed.claim
    held = sa.and_(ledger.c.id == claim.entry, ledger.c.token == claim.token, ledger.c.state == "open")
    row = connection.execute(sa.select(ledger.c.leased_until).where(held)).first()
    if row is None or row.leased_until is None:
        return False
    match closed.outcome:
        case ActionOutcome.DONE:
            values: dict[str, object] = {"state": "done", "reason": "", "closed_at": at.now}
            state = AssetState.READY if claim.action is Action.CREATE else AssetState.GONE
        case ActionOutcome.WAITING:
            values = {"due_at": at.now + PAUSE, "reason": closed.reason}
            state = AssetState.BACKFILLING if claim.action is Action.CREATE else AssetState.DESTROYING
        case ActionOutcome.FAILED:
            values = {
                "due_at": at.now + backoff(claim.attempts),
                "reason": closed.reason,
                "attempts": claim.attempts + 1,
            }
            state = AssetState.FAILING if claim.action is Action.CREATE else AssetState.DESTROYING
    connection.execute(sa.update(ledger).where(held).values(leased_until=None, **values))
    set_state(connection, [claim.asset_id], state, at)
    return True
