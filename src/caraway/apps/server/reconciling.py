"""The periodic work of a server, in rounds.

A round does the due actions of the ledger, renews the right to write rows of aggregates for jobs, and removes what the
server still has of indexes, sources and sinks that the ledger has destroyed.
"""

import time
from collections.abc import Callable, Collection, Mapping

from caraway.apps.server.control.reconciler import LedgerReconciler
from caraway.apps.server.server_index import ServerIndex
from caraway.state.blueprints import EMITS, AssetKind
from caraway.state.ledger import Ledger

# Seconds between two rounds while an action of the ledger is due or soon will be. For example, a branch serves its new
# commit only when the indexes of the commit have caught up, and a round notices that at most this much later.
LEDGER_INTERVAL_S = 0.5
# Seconds between two rounds while no action is due or soon will be. Such rounds find the actions that become due later,
# such as removals, and changes whose notification by Postgres was lost.
IDLE_INTERVAL_S = 2.0
# Seconds between two removals of data of destroyed indexes, sources and sinks: entries in the database of this server,
# and the positions of sources and sinks in Postgres.
FORGET_INTERVAL_S = 30.0
# Seconds between two renewals of the lease in Postgres that allows only one server to write rows of aggregates for
# jobs. If its owner doesn't renew it for `emitting.LASTING`, another server claims it.
EMISSION_INTERVAL_S = 2.0


class Reconciling:
    """The periodic work, of which each round does the steps that are due."""

    def __init__(
        self,
        reconciler: LedgerReconciler,
        ledger: Ledger,
        index: ServerIndex,
        forget: Mapping[AssetKind, Callable[[Collection[str]], object]],
        require_tables: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            reconciler: Does the actions of the ledger.
            ledger: The ledger.
            index: The index.
            forget: Removes what is kept of assets that are gone, given their names, by their kind.
            require_tables: Raises UnavailableError as long as Postgres lacks the tables.
        """
        self._reconciler = reconciler
        self._ledger = ledger
        self._index = index
        self._forget = forget
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
            for kind, forget in self._forget.items():
                forget(self._ledger.gone(kind))
