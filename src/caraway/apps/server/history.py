"""Figures over the last hours, such as ages and lags, minute by minute, in memory."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

STEP_S = 60
# A day of minutes: some 130 kB for each index.
KEPT = 24 * 60


@dataclass(slots=True)
class _Minute:
    """The greatest value of a minute, which begins at a time in seconds since the epoch."""

    at: int
    value: float


class History:
    """Keeps the greatest value of each minute. One thread writes, and others may read."""

    def __init__(self, kept: int = KEPT, most: int | None = None) -> None:
        """Know nothing yet.

        Args:
            kept: How many minutes are kept of each figure. A figure that wasn't noted in these is forgotten.
            most: The most figures; further ones aren't kept. None: any number.
        """
        self._kept = kept
        self._most = most
        self._figures: dict[str, deque[_Minute]] = {}

    def note(self, now: float, figures: Mapping[str, float]) -> None:
        """Add values of figures.

        Args:
            now: The time in seconds since the epoch.
            figures: The values by the names of the figures.
        """
        at = int(now // STEP_S) * STEP_S
        for name, minutes in list(self._figures.items()):
            if name not in figures and minutes[-1].at <= at - self._kept * STEP_S:
                del self._figures[name]
        for name, value in figures.items():
            kept = self._figures.get(name)
            if kept is None:
                if len(self._figures) == self._most:
                    continue
                kept = self._figures[name] = deque(maxlen=self._kept)
            # If the machine's clock was set back, a value may be of a minute before the newest one. The newest minute
            # then takes the greater of the two values.
            if kept and kept[-1].at >= at:
                kept[-1].value = max(kept[-1].value, value)
            else:
                kept.append(_Minute(at, value))

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the beginnings of minutes and their greatest values, in order; minutes without a value lack."""
        return [(minute.at, minute.value) for minute in list(self._figures.get(name, ()))]
