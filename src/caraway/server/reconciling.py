"""The periodic work of a server: due actions of the ledger, the right to emit, and the removal of unneeded indexes."""

import time
from collections.abc import Callable

from caraway.control.reconciler import LedgerReconciler
from caraway.ingest.sources.positions import SourcePositions
from caraway.server.server_index import ServerIndex
from caraway.state.blueprints import EMITS, AssetKind
from caraway.state.ledger import Ledger

# Interval between two looks at the ledger while actions wait, such as for an index to catch up; a branch switches at
# most this much late.
LEDGER_INTERVAL_S = 0.5
# Interval between two looks at the ledger when nothing is due. Postgres notifies this server of changes, so these looks
# find only changes whose notification was lost.
IDLE_INTERVAL_S = 2.0
# Interval between two searches for indexes and sources that nobody needs any more.
FORGET_INTERVAL_S = 30.0
# Interval between two renewals of the right to write rows of aggregates; without them another server takes over.
EMISSION_INTERVAL_S = 2.0


class Reconciling:
    """The periodic work, of which each round does the steps that are due."""

    def __init__(
        self,
        reconciler: LedgerReconciler,
        ledger: Ledger,
        index: ServerIndex,
        positions: SourcePositions,
        require_tables: Callable[[], None],
    ) -> None:
        """Prepare; `require_tables` raises UnavailableError as long as Postgres lacks the tables."""
        self._reconciler = reconciler
        self._ledger = ledger
        self._index = index
        self._positions = positions
        self._require_tables = require_tables
        self._forgot_at = time.monotonic()
        self._emission_renewed_at = float("-inf")

    def interval_s(self) -> float:
        """Return the seconds until the next round."""
        return LEDGER_INTERVAL_S if self._reconciler.busy else IDLE_INTERVAL_S

    def run(self) -> None:
        """Do a round. Raises `UnavailableError` if Postgres or Kafka doesn't answer."""
        self._require_tables()
        now = time.monotonic()
        if now - self._emission_renewed_at > EMISSION_INTERVAL_S:
            self._emission_renewed_at = now
            self._index.renew_emission()
        self._reconciler.reconcile()
        if now - self._forgot_at > FORGET_INTERVAL_S:
            self._forgot_at = now
            self._index.forget({bytes.fromhex(name.partition(EMITS)[0]) for name in self._ledger.gone(AssetKind.INDEX)})
            self._positions.forget(self._ledger.gone(AssetKind.INGEST))
