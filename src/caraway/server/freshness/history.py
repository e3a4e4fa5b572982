"""The ages of what queries read over the last day, minute by minute, in memory."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

STEP_S = 60
# A day of minutes: 23 kB for each index.
KEPT = 24 * 60


@dataclass(slots=True)
class _Minute:
    """The greatest age of a minute, which begins at a time in seconds since the epoch."""

    at: int
    seconds: float


class AgeHistory:
    """Keeps the greatest age of each minute. One thread writes, and others may read."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._ages: dict[str, deque[_Minute]] = {}

    def note(self, now: float, ages: Mapping[str, float]) -> None:
        """Add the ages of indexes, in seconds; indexes that are left out are forgotten.

        Args:
            now: The time in seconds since the epoch.
            ages: The ages by the names of the indexes.
        """
        at = int(now // STEP_S) * STEP_S
        for asset in self._ages.keys() - ages.keys():
            del self._ages[asset]
        for asset, seconds in ages.items():
            kept = self._ages.setdefault(asset, deque(maxlen=KEPT))
            # The machine's clock may be set back, so that minutes come again.
            if kept and kept[-1].at >= at:
                kept[-1].seconds = max(kept[-1].seconds, seconds)
            else:
                kept.append(_Minute(at, seconds))

    def of(self, asset: str) -> list[tuple[int, float]]:
        """Return the beginnings of minutes and their greatest ages, in order; minutes without a measurement lack."""
        return [(minute.at, minute.seconds) for minute in list(self._ages.get(asset, ()))]
