"""Groups of processes that own things, in Postgres: the living members, the owner of each thing, and its token.

A thing is a job or a shard. A process is a member of its group as long as its lease lasts, and owns things for as long,
so it renews only the row of its lease. A member's name contains the token of that lease: if a process is replaced while
it is paused, it and its replacement have different names. Each thing has a row with its owner and its fencing token.

There are two ways to become the owner of a thing. `take_free` takes it only if no living member owns it; the thing's
token grows unless the previous owner has surely ended. `take_over` takes it also from a living owner, who notices at
its next look; the thing's token always grows, and of several members that take it at once only the first succeeds.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.ownership.leases import Lease, attempt
from caraway.state.tables import leases

NOBODY = ""
# The time of expiry in the row of a thing, such as a job, is never reached. The row names the owner, and the thing is
# free when the lease of that owner, a row of its own, has expired.
_NEVER = sa.text("'infinity'::timestamptz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Processes that share things.

    Attributes:
        members: The beginning of the names of members' leases.
        things: The beginning of the names of things' rows.
    """

    members: str
    things: str


ENGINES = Group(members="engine/", things="job/")
# Archives divide the topics by hashing alone, so their topics have no owners in Postgres.
ARCHIVES = Group(members="archive/", things="archived/")
# Servers divide the sources by hashing, too. Each source also has a lease, because two servers may for a moment
# disagree about the division.
READERS = Group(members="source-reader/", things="read/")
# Servers divide the sinks by hashing as they divide the sources, with a lease for each sink.
WRITERS = Group(members="sink-writer/", things="written/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The owner of a thing: the name of a member, which may be dead, and the thing's token."""

    member: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """The living members of a group, and the owner of each thing that has one, at one moment."""

    members: frozenset[str]
    owned: Mapping[str, Owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group. All methods that read or write raise UnavailableError if Postgres doesn't answer.

    Attributes:
        engine: The database (`caraway.state.database.connect`).
        group: The group.
        node: The name that the process keeps when it restarts.
        token: The token of its lease; meaningless before it has claimed that.
    """

    engine: sa.Engine
    group: Group
    node: str
    token: int = 0

    @property
    def name(self) -> str:
        """The name under which this member owns things."""
        return member_name(self.node, self.token)

    @property
    def lease(self) -> Lease:
        """The lease by which this process is a member."""
        return Lease(engine=self.engine, name=self.group.members + self.node, owner=self.node)

    def with_token(self, token: int) -> Self:
        """Return this member with the token of its lease."""
        return replace(self, token=token)

    def look(self) -> Owners:
        """Return the living members and the owners of all things."""
        return attempt(self.engine, self.look_in, what=f"look who owns what ({self.group.things})")

    def look_in(self, connection: sa.Connection) -> Owners:
        """Return the living members and the owners of all things, as a connection reads them."""
        alive = leases.c.expires_at > sa.func.clock_timestamp()
        members, things = self.group.members, self.group.things
        rows = connection.execute(
            sa.select(leases.c.name, leases.c.token, leases.c.holder, alive).where(
                leases.c.name.startswith(members) | leases.c.name.startswith(things)
            )
        ).all()
        return Owners(
            members=frozenset(
                member_name(owner, token) for name, token, owner, lives in rows if lives and name.startswith(members)
            ),
            owned={
                name.removeprefix(things): Owned(member=owner, token=token)
                for name, token, owner, _ in rows
                if name.startswith(things) and owner != NOBODY
            },
        )

    def take_free(self, things: Collection[str], *, successor: bool) -> Mapping[str, int]:
        """Become the owner of those of the things that no living member owns, and return their tokens.

        Args:
            things: The names of things.
            successor: True if the last process of this node is known to have ended.
        """

        def token_of(owned: Owned, members: Collection[str]) -> int | None:
            if owned.member in members:
                return None
            ended = owned.member == NOBODY or (successor and node_of(owned.member) == self.node)
            return max(owned.token, 1) if ended else owned.token + 1

        return self._take(things, token_of)

    def take_over(self, thing: str, seen: int) -> int | None:
        """Become the owner of a thing, and return its token; None if somebody has taken it since it had token `seen`.

        Args:
            thing: The name of the thing.
            seen: The thing's token as last read; 0 if it never had an owner.
        """
        return self._take([thing], lambda owned, _: owned.token + 1 if owned.token == seen else None).get(thing)

    def give_up(self, things: Collection[str]) -> None:
        """Release things once the work on them has ended; things that another member owns stay as they are."""
        mine = leases.c.name.in_(self._rows(things)) & (leases.c.holder == self.name)
        given_up = sa.update(leases).where(mine).values(holder=NOBODY)
        attempt(self.engine, lambda connection: connection.execute(given_up), what=f"give up {self.group.things}")

    def forget(self, things: Collection[str]) -> None:
        """Delete the owners of things that are gone for good."""
        gone = sa.delete(leases).where(leases.c.name.in_(self._rows(things)))
        attempt(self.engine, lambda connection: connection.execute(gone), what=f"forget {self.group.things}")

    def _rows(self, things: Collection[str]) -> list[str]:
        return sorted(self.group.things + thing for thing in things)

    def _take(
        self, things: Collection[str], token_of: Callable[[Owned, Collection[str]], int | None]
    ) -> Mapping[str, int]:
        """Become the owner of the things for which `token_of` their row and the members returns a token."""
        names = self._rows(things)
        new = [{"name": name, "token": 0, "holder": NOBODY, "expires_at": _NEVER} for name in names]
        held = sa.select(leases.c.name, leases.c.token, leases.c.holder).where(leases.c.name.in_(names))

        def take(connection: sa.Connection) -> Mapping[str, int]:
            connection.execute(insert(leases).values(new).on_conflict_do_nothing())
            # Several members may find the same thing free; the locks on the rows let only the first of them take it.
            found = connection.execute(held.order_by(leases.c.name).with_for_update()).all()
            members = self.look_in(connection).members
            # A process that isn't a member any more, since another one replaced it during a pause, takes nothing.
            if self.name not in members:
                return {}
            tokens = {name: token_of(Owned(member=owner, token=token), members) for name, token, owner in found}
            taken = {name: token for name, token in tokens.items() if token is not None}
            for name, token in taken.items():
                change = sa.update(leases).where(leases.c.name == name).values(token=token, holder=self.name)
                connection.execute(change)
            return {name.removeprefix(self.group.things): token for name, token in taken.items()}

        return attempt(self.engine, take, what=f"take {self.group.things}")


def member_name(node: str, token: int) -> str:
    """Return the name under which a member owns things; its token tells a restarted process from its predecessor."""
    return f"{node}#{token}"


def node_of(member: str) -> str:
    """Return the node's part of a member's name."""
    return member.rpartition("#")[0]
