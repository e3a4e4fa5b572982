"""The owners of the shards of a divided index: addresses, fencing tokens, and progress of each shard (decision 23).

A server is a member as long as its lease (`index-server/N/…`) lasts, and owns its shards for as long. A shard's token
grows with each owner. Unlike a job, a shard may be taken from an owner that is alive: the new owner has read as far as
the old one by then, and the old one notices at its next look.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.errors import UnavailableError
from caraway.state.database import retry_outages
from caraway.state.leases import TIMEOUT_SECONDS, Lease, leases
from caraway.state.tables import metadata

T = TypeVar("T")

_SERVER, _SHARD = "index-server/", "index-shard/"
_NOBODY = ""
# The row of a shard never expires: ownership ends with the membership of the owner.
_NEVER = sa.text("'infinity'::timestamptz")

index_servers = sa.Table(
    "index_servers",
    metadata,
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
)

index_standings = sa.Table(
    "index_standings",
    metadata,
    sa.Column("shards", sa.Integer, primary_key=True),
    sa.Column("shard", sa.Integer, primary_key=True),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("level", sa.Boolean, nullable=False),
    sa.Column("frontier_us", sa.BigInteger),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProgress:
    """How far an index is in one shard.

    Attributes:
        caught_up: True if the index has reached the end of its topic since its owner started.
        max_event_time_us: The greatest event time of its aggregate inputs; None without any, or if no window needs it.
    """

    caught_up: bool
    max_event_time_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The owner of a shard: the name of a member, which may be dead, and the shard's token."""

    member: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The members, the owners of shards and the progress of the shards, at one moment.

    Attributes:
        addresses: The address of each living member by its name, which is its server's name, `#` and its token.
        owners: The owner of each shard that ever had one.
        progress: By shard and asset (as text), as the shard's last owner has reported it.
    """

    addresses: Mapping[str, str]
    owners: Mapping[int, Owned]
    progress: Mapping[int, Mapping[str, ShardProgress]]


NOTHING = Division(addresses={}, owners={}, progress={})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOwners:
    """One of the servers that share an index, divided into a number of shards; other divisions are independent of it.

    Attributes:
        engine: The database (`caraway.state.connect`).
        server: The name of the server, which it keeps when it restarts.
        shards: The number of shards into which the index is divided.
    """

    engine: sa.Engine
    server: str
    shards: int

    def join(self, address: str, lasting: timedelta) -> int | None:
        """Become a member with an address, and return its token; None while another process is this server.

        The caller must know that the last process of this server has ended.
        """
        told = insert(index_servers).values(server=self.server, address=address)
        self._do(
            told.on_conflict_do_update(index_elements=[index_servers.c.server], set_={"address": address}),
            what="write where this server is",
        )
        return self._lease.claim(lasting, succeeds=True)

    def renew(self, token: int, lasting: timedelta) -> bool:
        """Extend the membership; False if another process has become this server since."""
        return self._lease.renew(token, lasting)

    def leave(self, token: int) -> None:
        """End the membership."""
        self._lease.release(token)

    def look(self) -> Division:
        """Return the members, the owners and the progress of all shards."""
        alive = leases.c.expires_at > sa.func.clock_timestamp()
        of_server, of_shard = self._server, self._shard
        ours = sa.or_(leases.c.name.startswith(of_server), leases.c.name.startswith(of_shard))
        told_of = index_standings.c

        def look() -> Division:
            with self.engine.connect() as connection:
                rows = connection.execute(
                    sa.select(leases.c.name, leases.c.token, leases.c.holder, alive, index_servers.c.address)
                    .outerjoin(index_servers, leases.c.name == of_server + index_servers.c.server)
                    .where(ours)
                ).all()
                told = connection.execute(
                    sa.select(told_of.shard, told_of.asset, told_of.level, told_of.frontier_us).where(
                        told_of.shards == self.shards
                    )
                ).all()
            progress: dict[int, dict[str, ShardProgress]] = {}
            for shard, asset, caught_up, time_us in told:
                progress.setdefault(shard, {})[asset] = ShardProgress(caught_up=caught_up, max_event_time_us=time_us)
            return Division(
                addresses={
                    member_name(name.removeprefix(of_server), token): address
                    for name, token, _, is_alive, address in rows
                    if is_alive and address is not None and name.startswith(of_server)
                },
                owners={
                    int(name.removeprefix(of_shard)): Owned(member=owner, token=token)
                    for name, token, owner, _, _ in rows
                    if name.startswith(of_shard) and owner != _NOBODY
                },
                progress=progress,
            )

        return self._retry_outages(look, what="look who owns the index")

    def take(self, shard: int, seen: int, member: int) -> int | None:
        """Become the owner of a shard, and return its token; None if another server took it after token `seen`.

        Args:
            shard: Its number.
            seen: Its token as last read; 0 if it never had an owner.
            member: The token of this server's membership.
        """
        name, owner = f"{self._shard}{shard}", member_name(self.server, member)
        new = {"name": name, "token": 0, "holder": _NOBODY, "expires_at": _NEVER}
        is_member = sa.select(leases.c.name).where(
            leases.c.name == self._server + self.server,
            leases.c.token == member,
            leases.c.expires_at > sa.func.clock_timestamp(),
        )
        taken = (
            sa.update(leases)
            .where(leases.c.name == name, leases.c.token == seen, sa.exists(is_member))
            .values(token=leases.c.token + 1, holder=owner)
            .returning(leases.c.token)
        )

        def take() -> int | None:
            with self.engine.begin() as connection:
                connection.execute(insert(leases).values(new).on_conflict_do_nothing())
                token: int | None = connection.execute(taken).scalar()
            return token

        return self._retry_outages(take, what=f"take shard {shard} of the index")

    def report(self, shard: int, token: int, progress: Mapping[str, ShardProgress]) -> None:
        """Write the progress of a shard; a report of an earlier owner is ignored."""
        rows = [
            {
                "shards": self.shards,
                "shard": shard,
                "asset": asset,
                "token": token,
                "level": reached.caught_up,
                "frontier_us": reached.max_event_time_us,
            }
            for asset, reached in sorted(progress.items())
        ]
        if rows:
            told = insert(index_standings).values(rows)
            newest = told.on_conflict_do_update(
                index_elements=[index_standings.c.shards, index_standings.c.shard, index_standings.c.asset],
                set_={name: told.excluded[name] for name in ("token", "level", "frontier_us")},
                where=index_standings.c.token <= told.excluded.token,
            )
            self._do(newest, what=f"write how far shard {shard} of the index is")

    def forget(self, assets: set[str]) -> None:
        """Delete the reported progress of indexes that are gone."""
        gone = sa.delete(index_standings).where(index_standings.c.asset.in_(sorted(assets)))
        self._do(gone, what="forget indexes that are gone")

    @property
    def _server(self) -> str:
        return f"{_SERVER}{self.shards}/"

    @property
    def _shard(self) -> str:
        return f"{_SHARD}{self.shards}/"

    @property
    def _lease(self) -> Lease:
        return Lease(engine=self.engine, name=self._server + self.server, owner=self.server)

    def _do(self, statement: sa.Executable, *, what: str) -> None:
        def do() -> None:
            with self.engine.begin() as connection:
                connection.execute(statement)

        self._retry_outages(do, what=what)

    def _retry_outages(self, operation: Callable[[], T], *, what: str) -> T:
        try:
            # Callers poll: a change whose confirmation was lost is seen at the next look.
            return retry_outages(operation, what=what, timeout_seconds=TIMEOUT_SECONDS)
        except sa.exc.ProgrammingError as error:
            raise UnavailableError(f"could not {what}: the server has not set up the tables yet") from error


def member_name(server: str, token: int) -> str:
    """Return the name under which a member owns shards; its token tells a restarted server from its predecessor."""
    return f"{server}#{token}"


def server_of(member: str) -> str:
    """Return the server's part of a member's name."""
    return member.rpartition("#")[0]
