"""The division of sources among servers: each source has one server by hashing, and a lease that makes sure of it.

When servers come or go, they may disagree for some seconds about who reads a source. Then the lease of the source
decides (`caraway.ingest.sources.worker`): one server reads it, and the other one waits.
"""

from collections.abc import Collection

import sqlalchemy as sa

from caraway.cluster.assignment import chosen
from caraway.cluster.leases import HeldLease
from caraway.cluster.members import READERS, Member, node_of
from caraway.errors import UnavailableError
from caraway.ingest.sources.worker import LASTING

# The seconds between two renewals of the lease by which a server is a member. A server that was killed loses its
# sources when that lease and those of its sources have expired.
MEMBER_RENEWAL_S = 5.0


class SourceShares:
    """The part of one server. It is used by one thread at a time."""

    def __init__(self, engine: sa.Engine, node: str) -> None:
        """Compete as `node`, a name that the server keeps when it restarts."""
        self._member = Member(engine=engine, group=READERS, node=node)
        self._lease = HeldLease(self._member.lease, LASTING, renew_s=MEMBER_RENEWAL_S)
        self._nodes: frozenset[str] = frozenset()

    def mine(self, sources: Collection[str]) -> frozenset[str]:
        """Return the sources that this server is to read.

        While Postgres doesn't answer, they are those of the members that were last known.

        Raises:
            UnavailableError: Postgres doesn't answer, and no members are known yet.
        """
        try:
            self._lease.keep(succeeds=True)
            # A server that is too slow to renew its lease is a member all the same in its own eyes: without any other
            # one, nobody would read its sources.
            self._nodes = frozenset({self._member.node, *map(node_of, self._member.look().members)})
        except UnavailableError:
            if not self._nodes:
                raise
        return frozenset(source for source in sources if chosen(source, self._nodes) == self._member.node)

    def leave(self) -> None:
        """End the membership, so that the other servers take this server's sources at once.

        Raises `UnavailableError` if Postgres doesn't answer; they take them when the lease has expired.
        """
        self._lease.release()
