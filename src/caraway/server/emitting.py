"""The right of one server to write the rows of aggregates that jobs read; two would contradict each other."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from caraway.index import IndexStore
from caraway.index.feeding.recovery import forget_emissions
from caraway.index.storage.keys import META
from caraway.state.leases import Lease

LOG = structlog.get_logger(__name__)

LEASE = "rows of aggregates"
# Duration of the lease, and the part of it at its end in which nothing is handed to Kafka. Records may arrive for half
# a minute after that (`TopicWriter`), so when another server begins, each of them has arrived or never will.
LASTING = timedelta(seconds=90)
ARRIVING = timedelta(seconds=40)
TOKEN_KEY = META + b"emitter"


class EmissionRight:
    """The right to write rows of aggregates for jobs, and the token that it last had for this server's index."""

    def __init__(
        self,
        lease: Lease,
        store: IndexStore,
        *,
        lasting: timedelta = LASTING,
        arriving: timedelta = ARRIVING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; the right isn't held before `claim_or_renew`.

        Args:
            lease: The lease, of which the server whose index is in `store` is the owner.
            store: The index, which keeps the last token.
            lasting: After this time without a sign of life another server may take over.
            arriving: Longest time that a record takes to arrive.
            clock: Returns the time in seconds.
        """
        self._lease = lease
        self._store = store
        self._lasting = lasting
        self._sending = (lasting - arriving).total_seconds()
        self._clock = clock
        self._token: int | None = None
        self._until = float("-inf")

    def may_send(self) -> bool:
        """Return whether rows may be sent now."""
        return self._token is not None and self._clock() < self._until

    def claim_or_renew(self) -> None:
        """Renew the right, or claim it if no server has it; a lost right is claimed by the next call at the earliest.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        asked_at = self._clock()
        if self._token is not None:
            if self._lease.renew(self._token, self._lasting):
                self._until = asked_at + self._sending
                return
            # This call doesn't claim the right again: the caller must first stop following the indexes that emitted
            # under it.
            self._token = None
            LOG.warning("another server writes rows of aggregates now")
            return
        # The lease may be taken over from an earlier process of this name: it has ended, as only one process can open
        # this database.
        token = self._lease.claim(self._lasting, succeeds=True)
        if token is None:
            return
        last = self._store.get(TOKEN_KEY)
        if token != 1 + (0 if last is None else int.from_bytes(last)):
            # Another server has had the right since, so this index's record of what was emitted is outdated.
            forget_emissions(self._store)
        batch = self._store.batch()
        batch.put(TOKEN_KEY, token.to_bytes(8))
        self._store.write(batch)
        self._token, self._until = token, asked_at + self._sending
        LOG.info("this server writes rows of aggregates", token=token)

    def release(self) -> None:
        """Release the right to other servers; the caller must wait before until all that was sent has arrived.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        token, self._token = self._token, None
        if token is not None:
            self._lease.release(token)
