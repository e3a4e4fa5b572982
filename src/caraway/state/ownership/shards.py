"""The servers that share the shards of an index: their addresses, the owners, and the progress of each shard.

A server that should own a shard takes it even from a living owner (`Member.take_over`). It does so once its own copy of
the shard has caught up with the topics; the former owner notices at its next look.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.ownership.leases import attempt
from caraway.state.ownership.members import Group, Member, Owned, node_of
from caraway.state.tables import index_servers, index_standings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProgress:
    """How far an index is in one shard.

    Attributes:
        caught_up: True if the index has reached the end of its topic since its owner started.
        closing_us: Its closing time, the greatest event time of its aggregate inputs or the clock time; None if it has
            none, or if no window needs it.
    """

    caught_up: bool
    closing_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The members, the owners of shards and the progress of the shards, at one moment.

    Attributes:
        addresses: The address of each living member by its name.
        owners: The owner of each shard that ever had one.
        progress: By shard and asset (as text), as the shard's last owner has reported it.
    """

    addresses: Mapping[str, str]
    owners: Mapping[int, Owned]
    progress: Mapping[int, Mapping[str, ShardProgress]]


NOTHING = Division(addresses={}, owners={}, progress={})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMember(Member):
    """One of the servers that share an index.

    Attributes:
        shards: The number of shards into which the index is divided. Servers that divide it into another number form a
            group of their own.
    """

    shards: int

    def announce(self, address: str) -> None:
        """Write the address at which other servers reach this one."""
        new = insert(index_servers).values(server=self.node, address=address)
        newest = new.on_conflict_do_update(index_elements=[index_servers.c.server], set_={"address": address})
        self._do(newest, what="write where this server is")

    def look_at_shards(self) -> Division:
        """Return the members, the owners and the progress of all shards."""
        columns = index_standings.c["shard", "asset", "level", "frontier_us"]
        query = sa.select(*columns).where(index_standings.c.shards == self.shards)

        def look(connection: sa.Connection) -> Division:
            owners = self.look_in(connection)
            addresses = connection.execute(sa.select(index_servers.c.server, index_servers.c.address))
            servers = {row.server: row.address for row in addresses}
            progress: dict[int, dict[str, ShardProgress]] = {}
            for shard, asset, caught_up, time_us in connection.execute(query):
                progress.setdefault(shard, {})[asset] = ShardProgress(caught_up=caught_up, closing_us=time_us)
            return Division(
                addresses={m: servers[node_of(m)] for m in owners.members if node_of(m) in servers},
                owners={int(shard): owned for shard, owned in owners.owned.items()},
                progress=progress,
            )

        return attempt(self.engine, look, what="look who owns the index")

    def report(self, shard: int, token: int, progress: Mapping[str, ShardProgress]) -> None:
        """Write the progress of a shard; a report of an earlier owner is ignored."""
        rows = [
            {
                "shards": self.shards,
                "shard": shard,
                "asset": asset,
                "token": token,
                "level": reached.caught_up,
                "frontier_us": reached.closing_us,
            }
            for asset, reached in sorted(progress.items())
        ]
        if rows:
            new = insert(index_standings).values(rows)
            newest = new.on_conflict_do_update(
                index_elements=[index_standings.c.shards, index_standings.c.shard, index_standings.c.asset],
                set_={name: new.excluded[name] for name in ("token", "level", "frontier_us")},
                where=index_standings.c.token <= new.excluded.token,
            )
            self._do(newest, what=f"write how far shard {shard} of the index is")

    def forget_progress(self, assets: set[str]) -> None:
        """Delete the reported progress of indexes that are gone."""
        gone = sa.delete(index_standings).where(index_standings.c.asset.in_(sorted(assets)))
        self._do(gone, what="forget indexes that are gone")

    def _do(self, statement: sa.Executable, *, what: str) -> None:
        attempt(self.engine, lambda connection: connection.execute(statement), what=what)


def shard_member(engine: sa.Engine, server: str, shards: int) -> ShardMember:
    """Return a server as a member of those that divide the index into `shards`; it keeps its name when it restarts."""
    group = Group(members=f"index-server/{shards}/", things=f"index-shard/{shards}/")
    return ShardMember(engine=engine, group=group, node=server, shards=shards)
