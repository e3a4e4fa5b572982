"""Leases: the right of one owner at a time to do a thing, with a fencing token that refuses what earlier owners do.

Expiry is measured by Postgres's clock alone, so the clocks of competing machines needn't agree.
"""

from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import UnavailableError
from caraway.state.database import retry_outages
from caraway.state.tables import metadata

# Callers poll, so an attempt on a lease gives up after 2 s instead of queueing.
TIMEOUT_SECONDS = 2.0

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An exclusive right, held by one owner at a time.

    Attributes:
        engine: The database (`caraway.state.connect`).
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
            succeeds: True if the last owner, having the same name, is known to have ended: no waiting then.
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
            .returning(leases.c.token)
        )
        return self._changed(take, what=f"claim the lease {self.name}")

    def renew(self, token: int, lasting: timedelta) -> bool:
        """Extend the lease, even one that has expired; False if somebody else has claimed it since."""
        renewed = (
            sa.update(leases)
            .where(leases.c.name == self.name, leases.c.token == token)
            .values(expires_at=sa.func.clock_timestamp() + lasting)
            .returning(leases.c.token)
        )
        return self._changed(renewed, what=f"renew the lease {self.name}") is not None

    def release(self, token: int) -> None:
        """End the lease, so that the next owner needn't wait until it expires."""
        ended = (
            sa.update(leases)
            .where(leases.c.name == self.name, leases.c.token == token)
            .values(expires_at=sa.func.clock_timestamp() - sa.text("interval '1 second'"))
            .returning(leases.c.token)
        )
        self._changed(ended, what=f"release the lease {self.name}")

    def _changed(self, statement: sa.Executable, *, what: str) -> int | None:
        def change() -> int | None:
            with self.engine.begin() as connection:
                token: int | None = connection.execute(statement).scalar()
            return token

        try:
            # A claim whose confirmation was lost blocks the retries of this owner until it expires.
            return retry_outages(change, what=what, timeout_seconds=TIMEOUT_SECONDS)
        except sa.exc.ProgrammingError as error:
            raise UnavailableError(f"could not {what}: the server has not set up the tables yet") from error
