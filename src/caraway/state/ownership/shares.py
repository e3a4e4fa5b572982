"""The division of sources, or of sinks, among servers: each has one server by hashing, and a lease that makes sure.

When servers come or go, they may disagree for some seconds about who works on a thing. Then the lease of the thing
decides (`caraway.dataplane.sources.worker`, `caraway.dataplane.sinks.worker`): one server works on it, and the other
one waits.
"""

from collections.abc import Collection
from datetime import timedelta

import sqlalchemy as sa

from caraway.errors import UnavailableError
from caraway.state.ownership.assignment import chosen
from caraway.state.ownership.leases import HeldLease
from caraway.state.ownership.members import Group, Member, node_of

# The time for which the lease of a server as a member lasts. The things of a server that was killed go to others when
# this lease and those of the things have expired.
LASTING = timedelta(seconds=30)
# The seconds between two renewals of the lease by which a server is a member.
MEMBER_RENEWAL_S = 5.0


class Shares:
    """The part of one server. It is used by one thread at a time."""

    def __init__(self, engine: sa.Engine, group: Group, node: str) -> None:
        """Compete in a group as `node`, a name that the server keeps when it restarts."""
        self._member = Member(engine=engine, group=group, node=node)
        self._lease = HeldLease(self._member.lease, LASTING, renew_s=MEMBER_RENEWAL_S)
        self._nodes: frozenset[str] = frozenset()

    def mine(self, things: Collection[str]) -> frozenset[str]:
        """Return the things that this server is to work on.

        While Postgres doesn't answer, they are those of the members that were last known.

        Raises:
            UnavailableError: Postgres doesn't answer, and no members are known yet.
        """
        try:
            self._lease.keep(succeeds=True)
            # This server counts itself as a member even if it was too slow to renew its lease. Otherwise nobody would
            # work on its things if there is no other server.
            self._nodes = frozenset({self._member.node, *map(node_of, self._member.look().members)})
        except UnavailableError:
            if not self._nodes:
                raise
        return frozenset(thing for thing in things if chosen(thing, self._nodes) == self._member.node)

    def leave(self) -> None:
        """End the membership, so that the other servers take this server's things at once.

        Raises `UnavailableError` if Postgres doesn't answer; they take them when the lease has expired.
        """
        self._lease.release()
