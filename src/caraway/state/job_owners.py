"""The owners of jobs: each job runs on one engine at a time.

An engine is a member as long as its lease (`engine/…`) lasts, and owns its jobs for as long: it renews one row, however
many jobs it owns. An owner's name contains the token of its membership, so an engine that was replaced while it was
paused isn't taken for its replacement.

A job's own token decides who may write to its checkpoint. It grows if the previous owner may still be at work
somewhere; after an owner that stopped in good order, the next one continues with the same token.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import UnavailableError
from caraway.state.database import retry_outages
from caraway.state.leases import TIMEOUT_SECONDS, Lease, leases

T = TypeVar("T")

_MEMBER, _JOB = "engine/", "job/"
_NOBODY = ""
# The row of a job never expires: ownership ends with the membership of the owner.
_NEVER = sa.text("'infinity'::timestamptz")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOwners:
    """The living engines and the owners of jobs, at one moment.

    Attributes:
        members: The names of the engines that are alive.
        owners: The owner of each job that has one; it may be dead.
    """

    members: frozenset[str]
    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMembership:
    """One of the engines that share the jobs of a registry.

    Attributes:
        engine: The database (`caraway.state.connect`).
        engine_name: The name of the engine, which it keeps when it restarts.
        token: The token of its membership; meaningless before it is a member.
    """

    engine: sa.Engine
    engine_name: str
    token: int = 0

    @property
    def name(self) -> str:
        """The name under which this member owns jobs."""
        return f"{self.engine_name}#{self.token}"

    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        """Become a member; None while another process is this engine (see `caraway.state.Lease.claim`)."""
        return self._lease.claim(lasting, succeeds=succeeds)

    def renew(self, token: int, lasting: timedelta) -> bool:
        """Extend the membership; False if another process has become this engine since."""
        return self._lease.renew(token, lasting)

    def release(self, token: int) -> None:
        """End the membership."""
        self._lease.release(token)

    def with_token(self, token: int) -> Self:
        """Return this engine as the member that has this token."""
        return replace(self, token=token)

    def look(self) -> JobOwners:
        """Return the living engines and the owners of all jobs."""

        def look() -> JobOwners:
            with self.engine.connect() as connection:
                return _job_owners(connection)

        return self._retry_outages(look, what="look who runs the jobs")

    def take(self, jobs: Collection[str], *, successor: bool) -> Mapping[str, int]:
        """Become the owner of those of the jobs that no living member owns, and return their tokens.

        Args:
            jobs: Ids of jobs.
            successor: True if the last process of this engine is known to have ended.
        """
        return self._retry_outages(lambda: self._take(jobs, successor=successor), what="take jobs")

    def give_up(self, jobs: Collection[str]) -> None:
        """Release these jobs after their queries have ended; jobs that another engine owns stay as they are."""
        statement = (
            sa.update(leases)
            .where(leases.c.name.in_([_JOB + job for job in jobs]), leases.c.holder == self.name)
            .values(holder=_NOBODY)
        )
        self._change(statement, what="give up jobs")

    def forget(self, jobs: Collection[str]) -> None:
        """Delete the owners of jobs that are gone for good."""
        self._change(sa.delete(leases).where(leases.c.name.in_([_JOB + job for job in jobs])), what="forget jobs")

    @property
    def _lease(self) -> Lease:
        return Lease(engine=self.engine, name=_MEMBER + self.engine_name, owner=self.engine_name)

    def _take(self, jobs: Collection[str], *, successor: bool) -> Mapping[str, int]:
        names = sorted(_JOB + job for job in jobs)
        new = [{"name": name, "token": 1, "holder": _NOBODY, "expires_at": _NEVER} for name in names]
        mine = leases.c.name.in_(names)
        held = sa.select(leases.c.name, leases.c.token, leases.c.holder).where(mine).order_by(leases.c.name)
        with self.engine.begin() as connection:
            connection.execute(insert(leases).values(new).on_conflict_do_nothing())
            # Several engines may see the same job free; the row locks let only the first of them take it.
            found = connection.execute(held.with_for_update()).all()
            members = _job_owners(connection).members
            # An engine that was replaced while it was paused takes nothing.
            if self.name not in members:
                return {}
            taken = {}
            for name, token, owner in found:
                if owner not in members:
                    ended = owner == _NOBODY or (successor and owner.rpartition("#")[0] == self.engine_name)
                    taken[name] = token if ended else token + 1
            for name, token in taken.items():
                change = sa.update(leases).where(leases.c.name == name).values(token=token, holder=self.name)
                connection.execute(change)
        return {name.removeprefix(_JOB): token for name, token in taken.items()}

    def _change(self, statement: sa.Executable, *, what: str) -> None:
        def change() -> None:
            with self.engine.begin() as connection:
                connection.execute(statement)

        self._retry_outages(change, what=what)

    def _retry_outages(self, operation: Callable[[], T], *, what: str) -> T:
        try:
            # Callers poll: a change whose confirmation was lost is seen at the next look.
            return retry_outages(operation, what=what, timeout_seconds=TIMEOUT_SECONDS)
        except sa.exc.ProgrammingError as error:
            raise UnavailableError(f"could not {what}: the server has not set up the tables yet") from error


def _job_owners(connection: sa.Connection) -> JobOwners:
    rows = connection.execute(
        sa.select(
            leases.c.name, leases.c.token, leases.c.holder, leases.c.expires_at > sa.func.clock_timestamp()
        ).where(sa.or_(leases.c.name.startswith(_MEMBER), leases.c.name.startswith(_JOB)))
    ).all()
    return JobOwners(
        members=frozenset(
            f"{owner}#{token}" for name, token, owner, alive in rows if alive and name.startswith(_MEMBER)
        ),
        owners={
            name.removeprefix(_JOB): owner for name, _, owner, _ in rows if name.startswith(_JOB) and owner != _NOBODY
        },
    )
