"""The right of one server to write the rows of aggregates that jobs read; two would contradict each other."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from caraway.dataplane.index.feeding.recovery import forget_emissions
from caraway.dataplane.index.storage.keys import META
from caraway.dataplane.index.storage.store import IndexStore
from caraway.state.ownership.leases import HeldLease, Lease

LOG = structlog.get_logger(__name__)

LEASE = "rows of aggregates"
# The lease in Postgres lasts for `LASTING` without a renewal. During the last part of it, `ARRIVING`, its owner hands
# no rows to Kafka's producer, which gives a record up after 30 s (`TopicWriter`). So when the lease has ended and
# another server begins, each record of the former owner has arrived or never will.
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
        self._held = HeldLease(lease, lasting, clock=clock)
        self._store = store
        self._arriving_s = arriving.total_seconds()
        self._clock = clock
        # The fencing token that this process has stored in the index; None before its first claim of the lease.
        self._ready: int | None = None

    def may_send(self) -> bool:
        """Return whether rows may be sent now."""
        token = self._held.token
        return token is not None and token == self._ready and self._clock() < self._held.until - self._arriving_s

    def claim_or_renew(self) -> None:
        """Renew the right, or claim it if no server has it.

        A lost right is claimed by the next call at the earliest: the caller must first stop following the indexes that
        emitted under it.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        had = self._held.token
        # The lease may still be held in the name of an earlier process of this server. That process has ended, since
        # only one process at a time can open the index's database. So `succeeds` lets this process take the lease over
        # at once.
        self._held.keep(succeeds=True)
        token = self._held.token
        if token is None:
            if had is not None:
                LOG.warning("another server writes rows of aggregates now")
        elif token != self._ready:
            self._prepare(token)

    def release(self) -> None:
        """Release the right to other servers; the caller must wait before until all that was sent has arrived.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        self._held.release()

    def _prepare(self, token: int) -> None:
        """Write the token into the index, which forgets the emitted rows if another server has had the right since."""
        last = self._store.get(TOKEN_KEY)
        if token != 1 + (0 if last is None else int.from_bytes(last)):
            forget_emissions(self._store)
        batch = self._store.batch()
        batch.put(TOKEN_KEY, token.to_bytes(8))
        self._store.write(batch)
        self._ready = token
        LOG.info("this server writes rows of aggregates", token=token)
