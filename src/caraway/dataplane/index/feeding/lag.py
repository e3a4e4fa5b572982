"""The lag of indexes, in records and in seconds."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from caraway.dataplane.index.feeding.worker import IndexStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLag:
    """The lag of an index.

    Attributes:
        dataset: The dataset that it serves.
        asset: The hexadecimal name of the index.
        records: The number of records on its topic that aren't in the index.
        seconds: The age of the backlog: the time since the newest record in the index was accepted, or since the index
            had caught up if that was later; 0 without a backlog.
        grown: The number of records by which the backlog is larger than it was at its lowest. While an index is built
            from its topic, the backlog shrinks from the history of the topic, so this number stays small. The backlog
            is compared in messages: its estimate in records may grow because the last messages had many.
    """

    dataset: str
    asset: str
    records: int
    seconds: float
    grown: int


@dataclass(slots=True)
class _Seen:
    """The earlier looks at an index: when it had last caught up, its lowest backlog, and the records that it applied.

    The lowest backlog is counted in messages.

    Before it has caught up once, `caught_up_at` is None, and `first_at` is the time of the first look.
    """

    first_at: float
    lowest: float
    applied: int
    caught_up_at: float | None = None


class IndexLags:
    """Computes the lags of indexes from looks at their progress. Thread safe.

    The ingestion time of the newest applied record alone isn't the age of a backlog: if nothing came for an hour, this
    record is an hour old when the next one arrives. So an index is at most as late as the last look at which it had
    caught up.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Compare with the time that `clock` returns, in seconds since the epoch."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def look(self, statuses: Iterable[IndexStatus]) -> tuple[IndexLag, ...]:
        """Return the lag of each index whose number of waiting records is known."""
        with self._lock:
            now = self._clock()
            statuses = list(statuses)
            assets = {status.asset for status in statuses}
            # While an index moves to the thread for backlogs, its lag is unknown for a moment. The results of earlier
            # looks at the index are kept meanwhile. Without them, the backlog for which it moves would be taken for the
            # history of its topic.
            self._seen = {asset: seen for asset, seen in self._seen.items() if asset in assets}
            return tuple(self._lag(status, status.lag, now) for status in statuses if status.lag is not None)

    def _lag(self, status: IndexStatus, records: int, now: float) -> IndexLag:
        applied = status.written + status.unchanged + status.refused
        seen = self._seen.get(status.asset)
        # The count of applied records falls if a damaged index is replaced by an empty one. The results of looks at the
        # old index are dropped then.
        messages = records / status.records_per_message
        if seen is None or applied < seen.applied:
            seen = self._seen[status.asset] = _Seen(now, messages, applied)
        seen.applied, seen.lowest = applied, min(seen.lowest, messages)
        if not records:
            seen.caught_up_at = now
        newest = status.newest_ingested_us / 1e6
        reached = newest or seen.first_at if seen.caught_up_at is None else max(newest, seen.caught_up_at)
        return IndexLag(
            dataset=status.dataset,
            asset=status.asset,
            records=records,
            seconds=round(max(0.0, now - reached), 3) if records else 0.0,
            grown=round((messages - seen.lowest) * status.records_per_message),
        )
