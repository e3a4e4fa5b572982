"""Leases: the right of one owner at a time to do a thing, with a fencing token that refuses what earlier owners do.

Expiry is measured by Postgres's clock alone, so the clocks of competing machines needn't agree.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.database import in_transaction
from caraway.state.tables import leases

T = TypeVar("T")

# How long a transaction on leases is tried again during an outage of Postgres. It is short, since every caller repeats
# its call at an interval anyway.
TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An exclusive right, held by one owner at a time. All methods raise UnavailableError if Postgres doesn't answer.

    Attributes:
        engine: The database (`caraway.state.database.connect`).
        name: The name of the right.
        owner: The name of the claiming process, as people read it.
    """

    engine: sa.Engine
    name: str
    owner: str

    def claim(self, lasting: timedelta, *, succeeds: bool) -> int | None:
        """Take the lease if it is free, and return its new fencing token; None if another owner holds it.

        Args:
            lasting: How long it lasts without being renewed.
            succeeds: True if an earlier owner of the same name is known to have ended, so that its lease is free.
        """
        until = sa.func.clock_timestamp() + lasting
        free = leases.c.expires_at < sa.func.clock_timestamp()
        if succeeds:
            free = free | (leases.c.holder == self.owner)
        take = (
            insert(leases)
            .values(name=self.name, token=1, holder=self.owner, expires_at=until)
            .on_conflict_do_update(
                index_elements=[leases.c.name],
                set_={"token": leases.c.token + 1, "holder": self.owner, "expires_at": until},
                where=free,
            )
        )
        # If Postgres made the claim but its answer was lost, the row already names this owner, who doesn't know the
        # token. Without `succeeds` the row isn't free even for its own owner, so new claims fail until this one
        # expires.
        return self._changed(take, what=f"claim the lease {self.name}")

    def renew(self, token: int, lasting: timedelta) -> bool:
        """Extend the lease, even one that has expired; False if somebody else has claimed it since."""
        renewed = self._mine(token).values(expires_at=sa.func.clock_timestamp() + lasting)
        return self._changed(renewed, what=f"renew the lease {self.name}") is not None

    def release(self, token: int) -> None:
        """End the lease, so that the next owner needn't wait until it expires."""
        ended = self._mine(token).values(expires_at=sa.func.clock_timestamp() - sa.text("interval '1 second'"))
        self._changed(ended, what=f"release the lease {self.name}")

    def _mine(self, token: int) -> sa.Update:
        return sa.update(leases).where(leases.c.name == self.name, leases.c.token == token)

    def _changed(self, statement: sa.Update | sa.sql.dml.Insert, *, what: str) -> int | None:
        returning = statement.returning(leases.c.token)
        token: int | None = attempt(self.engine, lambda connection: connection.execute(returning).scalar(), what=what)
        return token


class HeldLease:
    """A lease as the process that holds it sees it: its token, and how long it lasts by the clock of this process.

    A renewal counts from a moment before it is sent, by this clock, and from a later moment in Postgres. So nobody else
    can claim the lease before `until`.

    Attributes:
        token: The fencing token; None while the lease isn't held.
    """

    def __init__(
        self, lease: Lease, lasting: timedelta, *, renew_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare; the lease isn't held before `keep`.

        After the time `lasting` without a renewal another process may claim the lease. Two renewals are at least
        `renew_s` seconds apart. `clock` returns the time in seconds.
        """
        self.token: int | None = None
        self._lease = lease
        self._lasting = lasting
        self._renew_s = renew_s
        self._clock = clock
        self._renewed_at = float("-inf")

    @property
    def until(self) -> float:
        """The time until which the lease lasts at least, by this process's clock."""
        return self._renewed_at + self._lasting.total_seconds()

    def keep(self, *, succeeds: bool) -> bool:
        """Renew the lease, or claim it if it isn't held; return whether it is held now.

        When the lease turns out to be lost, only the next call claims it again, since the caller must first end the
        work that needs the lease. `succeeds` is as in `Lease.claim`.

        Raises `UnavailableError` if Postgres doesn't answer; a lease that is held lasts as long as before.
        """
        now = self._clock()
        if self.token is None:
            self.token = self._lease.claim(self._lasting, succeeds=succeeds)
        elif now < self._renewed_at + self._renew_s:
            return True
        elif not self._lease.renew(self.token, self._lasting):
            self.token = None
        self._renewed_at = float("-inf") if self.token is None else now
        return self.token is not None

    def release(self) -> None:
        """End the lease, so that the next owner needn't wait until it expires."""
        token, self.token = self.token, None
        self._renewed_at = float("-inf")
        if token is not None:
            self._lease.release(token)


def attempt(engine: sa.Engine, operation: Callable[[sa.Connection], T], *, what: str) -> T:
    """Run an idempotent transaction, and repeat it for a short time while Postgres is unreachable.

    Raises `UnavailableError` if Postgres doesn't answer, or has no tables yet.
    """
    return in_transaction(engine, operation, what=what, timeout_seconds=TIMEOUT_SECONDS)
