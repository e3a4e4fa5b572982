"""Which server writes the rows of aggregates that jobs read: one at a time, as two would contradict each other."""

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
# What was handed to Kafka may arrive for half a minute (`TopicWriter`); nothing is handed over in the last part of a
# lease, so all of it is there, or never will be, when another server begins.
LASTING = timedelta(seconds=90)
ARRIVING = timedelta(seconds=40)
TOKEN_KEY = META + b"emitter"


class EmissionRight:
    """The right to write such rows, and the last time that this server's index had it."""

    def __init__(
        self,
        lease: Lease,
        store: IndexStore,
        *,
        lasting: timedelta = LASTING,
        arriving: timedelta = ARRIVING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nobody has it before `claim_or_renew`.

        Args:
            lease: Its owner is the server whose index is in `store`.
            store: The index. It notes which token it had.
            lasting: After this time without a sign of life another server may take over.
            arriving: How long what was sent may take to arrive.
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
        """Keep the right, or take it if nobody has it. Not while indexes that emit are followed without it.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        asked_at = self._clock()
        if self._token is not None:
            if self._lease.renew(self._token, self._lasting):
                self._until = asked_at + self._sending
                return
            # It isn't asked for again before what was followed under it is followed no more.
            self._token = None
            LOG.warning("another server writes rows of aggregates now")
            return
        # The last owner of this name had this database open, which one process at a time can have.
        token = self._lease.claim(self._lasting, succeeds=True)
        if token is None:
            return
        last = self._store.get(TOKEN_KEY)
        if token != 1 + (0 if last is None else int.from_bytes(last)):
            # Somebody else had it in between.
            forget_emissions(self._store)
        batch = self._store.batch()
        batch.put(TOKEN_KEY, token.to_bytes(8))
        self._store.write(batch)
        self._token, self._until = token, asked_at + self._sending
        LOG.info("this server writes rows of aggregates", token=token)

    def release(self) -> None:
        """Let another server have it at once; to be called when all that was sent has arrived.

        Raises:
            UnavailableError: Postgres doesn't answer.
        """
        token, self._token = self._token, None
        if token is not None:
            self._lease.release(token)
