"""The pace of a load: how fast it is, by its last half minute, and how long the rest will take at that pace."""

from collections import deque
from collections.abc import Callable

from caraway.dataplane.sources.reader import Progress

# The pace is measured over this many seconds: enough that single batches don't matter, and few enough that a load that
# becomes slower is soon noticed.
SPAN_S = 30.0
# Seconds between two stored measurements.
STEP_S = 1.0


class Pace:
    """The pace of the loads of one source, of which each new one begins anew. It is used by one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Measure by `clock`, which returns seconds and never jumps."""
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, progress: Progress | None) -> None:
        """Note how far the load is now; None if none is going on."""
        if progress is None or (self._seen and progress.done < self._seen[-1][1]):
            self._seen.clear()
        if progress is None:
            return
        now = self._clock()
        if not self._seen or now >= self._seen[-1][0] + STEP_S:
            self._seen.append((now, progress.done))
        # One measurement that is older than the span stays, so that the span is always covered.
        while len(self._seen) > 2 and self._seen[1][0] <= now - SPAN_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """The units a second; None if the load has just begun."""
        if len(self._seen) < 2:
            return None
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - begun)

    def remaining_s(self, progress: Progress | None) -> float | None:
        """Return the seconds until the load is complete; None if that can't be told."""
        pace = self.per_second
        if progress is None or not pace:
            return None
        return max(0, progress.total - progress.done) / pace
