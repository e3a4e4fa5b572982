"""Which engine runs which job: each job has one owner at a time.

An engine is a member as long as its lease (`engine/…`) lasts, and what it holds is its own for as long: to renew one
row every two seconds keeps any number of jobs. A owner's name carries the token of its membership, so an engine that
was missed and comes back isn't taken for the one that runs in its place.

A job's own token says who may write to its checkpoint. It grows when the owner before may still be at work somewhere;
whoever follows one that has ended in good order goes on with the same token.
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
# A job's row lasts as long as the membership of its owner, whatever the clock says.
_NEVER = sa.text("'infinity'::timestamptz")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOwners:
    """Who is there and who has what.

    Attributes:
        members: The engines that are alive.
        owners: Of each job that is held, its owner, which may be dead.
    """

    members: frozenset[str]
    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMembership:
    """One engine among those that share the jobs of a registry.

    Attributes:
        engine: The database (`caraway.state.connect`).
        engine_name: The engine, in words for people: the same when it is started again.
        token: Of its lease, once it is a member.
    """

    engine: sa.Engine
    engine_name: str
    token: int = 0

    @property
    def name(self) -> str:
        """The name under which it holds jobs."""
        return f"{self.engine_name}#{self.token}"

    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        """Become a member; None while another process is this engine (see `caraway.state.Lease.claim`)."""
        return self._lease.claim(lasting, succeeds=succeeds)

    def renew(self, token: int, lasting: timedelta) -> bool:
        """Stay a member; False if another process has become this engine since."""
        return self._lease.renew(token, lasting)

    def release(self, token: int) -> None:
        """Be a member no longer."""
        self._lease.release(token)

    def with_token(self, token: int) -> Self:
        """Return this engine as the member that has this token."""
        return replace(self, token=token)

    def look(self) -> JobOwners:
        """Look who is there and who holds what.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """

        def look() -> JobOwners:
            with self.engine.connect() as connection:
                return _job_owners(connection)

        return self._retry_outages(look, what="look who runs the jobs")

    def take(self, jobs: Collection[str], *, successor: bool) -> Mapping[str, int]:
        """Take those of the jobs that no member holds, and return their tokens.

        Args:
            jobs: Their ids.
            successor: Whether the last process that was this engine is known to have ended.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        return self._retry_outages(lambda: self._take(jobs, successor=successor), what="take jobs")

    def give_up(self, jobs: Collection[str]) -> None:
        """Let others have these jobs, whose queries have ended; those that it doesn't hold stay as they are.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        statement = (
            sa.update(leases)
            .where(leases.c.name.in_([_JOB + job for job in jobs]), leases.c.holder == self.name)
            .values(holder=_NOBODY)
        )
        self._change(statement, what="give up jobs")

    def forget(self, jobs: Collection[str]) -> None:
        """Remove what is known of jobs that are gone for good.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
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
            # Of several engines that see the same job free, one gets here first.
            found = connection.execute(held.with_for_update()).all()
            members = _job_owners(connection).members
            # A process that was replaced while it was paused takes nothing.
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
