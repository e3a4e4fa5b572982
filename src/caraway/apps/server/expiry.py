"""Expiry: the superseded versions that no read can reach any more, and a thread that has them removed."""

import threading
import time
from collections.abc import Callable, Mapping

import structlog

from caraway.errors import UnavailableError
from caraway.graph.plan.model import IndexKind
from caraway.process.recurring import Recurring
from caraway.state.plans import Planned

LOG = structlog.get_logger(__name__)

SWEEP_INTERVAL_S = 3600.0


# A function that removes superseded versions of an index, and returns how many. Its arguments are the asset of the
# index, an instant in microseconds since 1970, and an event. Versions that were superseded at or before the instant are
# removed. If the event is set, the function ends early.
Expire = Callable[[bytes, int, threading.Event], int]


def histories(commits: Mapping[str, Planned]) -> dict[bytes, int]:
    """Return how long each index keeps superseded versions, in microseconds.

    An offline index is read as of any time, so it keeps all versions and isn't listed. If several commits share an
    index, the longest history counts.
    """
    kept: dict[bytes, int | None] = {}
    for planned in commits.values():
        specs = {spec.name: spec for spec in planned.graph.datasets}
        for plan in planned.plan.indexes:
            spec = specs.get(plan.dataset)
            history = None if spec is None or spec.index is None or spec.index.offline else spec.history_us
            if plan.kind is not IndexKind.VERSIONS or plan.emits is not None:
                history = None
            known = kept.get(plan.asset, 0)
            kept[plan.asset] = None if history is None or known is None else max(history, known)
    return {asset: history for asset, history in kept.items() if history is not None}


class Expiry(Recurring):
    """Sweeps all indexes every hour."""

    def __init__(
        self,
        expire: Expire,
        commits: Callable[[], Mapping[str, Planned]],
        *,
        interval_s: float = SWEEP_INTERVAL_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Remove by `expire` the versions that none of the `commits` keeps."""
        super().__init__("expiry", self.sweep, interval_s)
        self._expire = expire
        self._commits = commits
        self._clock = clock

    def sweep(self) -> int:
        """Sweep once; return how many versions were removed."""
        removed = 0
        for asset, history_us in histories(self._commits()).items():
            try:
                removed += self._expire(asset, int(self._clock() * 1e6) - history_us, self.stopping)
            except UnavailableError as error:
                LOG.warning("an index can't be swept", asset=asset.hex(), reason=str(error))
        if removed:
            LOG.info("removed versions beyond the history of their datasets", versions=removed)
        return removed
