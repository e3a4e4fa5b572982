"""Bounded sources of webhooks: one server closes them when no rows came for their idleness, and all stop taking rows.

Each server that takes rows for such a source notes that in Postgres now and then (`Receipts`), and is told whether the
source was closed. The server that has the source's lease reads these notes (`WebhookReader`), so the worker of sources
closes it like any other one.
"""

import secrets
import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

import structlog

from caraway.dataplane.ingest.table import RowTable
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.positions import SourcePositions
from caraway.dataplane.sources.reader import Items, Position, Progress, SourceBatch
from caraway.dtypes.durations import US_PER_SECOND
from caraway.errors import UnavailableError
from caraway.graph.plan.model import IngestPlan
from caraway.graph.sources import SourceSpec

LOG = structlog.get_logger(__name__)

# The item of a source that gets new random bytes when rows come.
RECEIVED = "$received"
RECEIPT_BYTES = 8
# A server notes that rows came for a source, and looks at such notes, once in this many seconds. For a source with a
# short idleness, the interval is this share of the idleness.
LONGEST_S, SHARE = 5.0, 0.125


def interval_s(source: SourceSpec) -> float:
    """Return the seconds between two notes about a bounded source."""
    return min(LONGEST_S, SHARE * (source.idleness_us or 0) / US_PER_SECOND)


class Receipts:
    """The notes of one server about rows of bounded webhooks, and which of these have ended. Thread safe."""

    def __init__(
        self,
        positions: SourcePositions,
        name_of: Callable[[IngestPlan], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            positions: The store of checkpoints.
            name_of: Returns the name under which the position of a source is kept.
            clock: Returns the time in seconds, which never jumps.
        """
        self._positions = positions
        self._name_of = name_of
        self._clock = clock
        self._lock = Lock()
        # When this server last noted rows of a target; infinite if its source is closed, which is for good.
        self._noted: WeakKeyDictionary[Target, float] = WeakKeyDictionary()

    def is_closed(self, target: Target) -> bool:
        """Note that rows came for a target; return whether its source is closed, so that they must be left out.

        While Postgres doesn't answer, rows are taken: no server can close the source then, and its time of idleness
        begins anew afterwards. Blocks.
        """
        source = target.plan.source
        if not source.bounded:
            return False
        with self._lock:
            noted = self._noted.get(target, float("-inf"))
        now = self._clock()
        if now < noted + interval_s(source):
            return noted == float("inf")
        try:
            closed = self._positions.receive(self._name_of(target.plan), RECEIVED, secrets.token_bytes(RECEIPT_BYTES))
        except UnavailableError as error:
            LOG.warning("rows of a bounded webhook can't be noted", dataset=target.dataset, error=str(error))
            return False
        with self._lock:
            self._noted[target] = float("inf") if closed else now
        return closed


class WebhookReader:
    """Shows the worker of a bounded webhook source when rows came last (`SourceReader`). It yields no rows itself."""

    def __init__(
        self,
        source: SourceSpec,
        receipt: Callable[[], bytes],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare.

        Args:
            source: The definition of the source.
            receipt: Returns the newest note that rows came; raises `UnavailableError` if Postgres doesn't answer.
            clock: Returns the time in seconds, which never jumps.
            sleep: Waits for some seconds.
        """
        self._receipt = receipt
        self._interval_s = interval_s(source)
        self._clock = clock
        self._sleep = sleep
        self._known: bytes | None = None
        self._asked_at = float("-inf")
        self._idle_at: float | None = None

    def seek(self, position: Position, items: Items) -> Position:
        """Return the position, which says nothing."""
        del items
        return position

    def poll(self, *, rows: int, size: int, timeout_s: float) -> SourceBatch | None:
        """Return a batch without rows if a server noted rows since the last look; None if none did."""
        del rows, size
        begun = self._clock()
        if begun < self._asked_at + self._interval_s:
            self._sleep(min(timeout_s, self._asked_at + self._interval_s - begun))
            return None
        known, self._known, self._asked_at = self._known, self._receipt(), begun
        if known != self._known:
            self._idle_at = None
            return SourceBatch(rows=RowTable([], {}), mark=str, origin=lambda _: {}, position={}, is_activity=True)
        # A server notes rows only once in an interval, so the last rows may have come up to an interval after its last
        # note.
        self._idle_at = begun - self._interval_s
        return None

    def is_ahead(self, mark: str) -> bool:
        """Return False: no row has a mark."""
        del mark
        return False

    def acknowledge(self, position: Position) -> None:
        """Do nothing: clients have their answers."""

    def lag(self) -> int | None:
        """Return 0: rows are written before they are answered."""
        return 0

    def idle_at(self) -> float | None:
        """Return up to when no rows had come; see `SourceReader.idle_at`."""
        return self._idle_at

    def progress(self) -> Progress | None:
        """Return nothing: a webhook has no size."""
        return None

    def peek(self, rows: int) -> SourceBatch:
        """Return no rows: clients send them."""
        del rows
        return SourceBatch(rows=RowTable([], {}), mark=str, origin=lambda _: {}, position={})

    def close(self) -> None:
        """Do nothing: there is no connection."""
